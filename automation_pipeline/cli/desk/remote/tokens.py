"""Tokens by the API."""

from collections.abc import Sequence
from typing import cast

from automation_pipeline.access.domain.api_token import ApiToken
from automation_pipeline.access.stages.create_token import IssuedToken
from automation_pipeline.cli.desk.remote.api import (
    Api,
    Document,
    data_of,
    every_page,
    instant,
    instant_or_none,
    read,
)
from automation_pipeline.core.access import Scope

PATH = "/api/admin/tokens"


class RemoteTokens:
    def __init__(self, api: Api) -> None:
        self._api = api

    def create(self, given: Document) -> IssuedToken:
        """Not asked twice: a token whose answer was lost is nobody's."""
        made = data_of(self._api.post(PATH, given, repeatable=False))
        return read(lambda: IssuedToken(_token(made), str(made["token"])))

    def listed(self, *, everything: bool) -> Sequence[ApiToken]:
        listed = every_page(self._api, PATH, {"include_inactive": everything})
        return read(lambda: [_token(one) for one in listed])

    def revoke(self, token_id: int) -> ApiToken:
        revoked = data_of(self._api.delete(f"{PATH}/{token_id}"))
        return read(lambda: _token(revoked))


def _token(shown: Document) -> ApiToken:
    """Without its hash, which stays there."""
    return ApiToken(
        id=int(str(shown["id"])),
        name=str(shown["name"]),
        token_hash="",
        prefix=str(shown["prefix"]),
        permissions=tuple(cast("Sequence[str]", shown["permissions"])),
        scope=Scope[str(shown["scope"])],
        groupes=tuple(cast("Sequence[str]", shown["groupes"])),
        crm_user_id=cast("str | None", shown["crmUserId"]),
        created_at=instant(shown["createdAt"]),
        expires_at=instant_or_none(shown["expiresAt"]),
        last_used_at=instant_or_none(shown["lastUsedAt"]),
        revoked_at=instant_or_none(shown["revokedAt"]),
        org_id=cast("str | None", shown["orgId"]),
    )
