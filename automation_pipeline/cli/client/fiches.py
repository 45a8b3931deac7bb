"""Fiches, transcriptions, audits and tokens, here and by the API."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import cast

from pydantic import TypeAdapter

from automation_pipeline.access.models import ApiToken
from automation_pipeline.access.queries import list_tokens
from automation_pipeline.access.tokens import IssuedToken, create_token, revoke_token
from automation_pipeline.bootstrap import Services
from automation_pipeline.cli.client.http import (
    Api,
    Document,
    asked_for,
    data_of,
    every_page,
    instant,
    instant_or_none,
    read,
)
from automation_pipeline.cli.client.ports import NeverStarted
from automation_pipeline.core.access import Scope
from automation_pipeline.fiches.queries.fiches import fiche_document
from automation_pipeline.org_jobs.queries.organisations import has_organisation
from automation_pipeline.transcription.models import (
    RequestedTranscription,
    TranscriptionPriority,
    TranscriptionSummary,
)
from automation_pipeline.transcription.queries.recordings import transcription_status
from automation_pipeline.transcription.queries.requests import request_outcomes
from automation_pipeline.transcription.requests import request_transcriptions


class LocalFiches:
    def __init__(self, services: Services) -> None:
        self._services = services

    def mirrored(self, fiche_id: str) -> Mapping[str, object]:
        with self._services.database.reading() as session:
            return {
                **fiche_document(session, fiche_id),
                "transcription": transcription_status(session, fiche_id),
            }


class LocalTranscriptions:
    def __init__(self, services: Services) -> None:
        self._services = services

    def request(
        self, fiche_ids: Sequence[str], priority: TranscriptionPriority
    ) -> Sequence[RequestedTranscription]:
        services = self._services
        return request_transcriptions(
            fiche_ids,
            priority=priority,
            batch=False,
            database=services.database,
            clock=services.clock,
        )

    def followed(
        self, requested: Sequence[RequestedTranscription], asked_at: datetime
    ) -> Mapping[str, TranscriptionSummary | NeverStarted]:
        with self._services.database.reading() as session:
            found = request_outcomes(session, requested, asked_at)
        return {
            fiche_id: NeverStarted(fiche_id, one) if isinstance(one, str) else one
            for fiche_id, one in found.items()
        }


class RemoteFiches:
    def __init__(self, api: Api) -> None:
        self._api = api

    def mirrored(self, fiche_id: str) -> Mapping[str, object]:
        return data_of(self._api.get(f"/api/fiches/{fiche_id}/mirror"))


class RemoteTranscriptions:
    def __init__(self, api: Api) -> None:
        self._api = api

    def request(
        self, fiche_ids: Sequence[str], priority: TranscriptionPriority
    ) -> Sequence[RequestedTranscription]:
        keys: dict[str, str] = {}
        for fiche_id in dict.fromkeys(fiche_ids):
            asked = self._api.post(
                f"/api/transcriptions/{fiche_id}", query={"priority": priority.value}
            )
            keys[fiche_id] = str(read(lambda asked=asked: asked["event_id"]))
        filed = {
            str(one["key"]): cast("str | None", one["run_id"])
            for one in self._filed(list(keys.values()))
        }
        return [
            RequestedTranscription(fiche_id, filed.get(key), key) for fiche_id, key in keys.items()
        ]

    def followed(
        self, requested: Sequence[RequestedTranscription], asked_at: datetime
    ) -> Mapping[str, TranscriptionSummary | NeverStarted]:
        """The API knows itself when each was asked for."""
        del asked_at
        keys = [one.key for one in requested if one.key]
        found = {str(one["fiche_id"]): _outcome(one) for one in self._filed(keys)}
        return {fiche_id: outcome for fiche_id, outcome in found.items() if outcome is not None}

    def _filed(self, keys: Sequence[str]) -> Sequence[Document]:
        return asked_for(self._api, "transcriptions", keys)


def _outcome(one: Document) -> TranscriptionSummary | NeverStarted | None:
    if one["refused"] is not None:
        return NeverStarted(str(one["fiche_id"]), str(one["refused"]))
    standing = one["standing"]
    return (
        None
        if standing is None
        else read(lambda: TypeAdapter(TranscriptionSummary).validate_python(standing))
    )


class LocalTokens:
    def __init__(self, services: Services) -> None:
        self._services = services

    def create(self, given: Mapping[str, object]) -> IssuedToken:
        return create_token(
            given,
            database=self._services.database,
            clock=self._services.clock,
            organisation_exists=has_organisation,
        )

    def listed(self, *, everything: bool) -> Sequence[ApiToken]:
        good_at = None if everything else self._services.clock.now()
        with self._services.database.reading() as session:
            return list_tokens(session, good_at=good_at)

    def revoke(self, token_id: int) -> ApiToken:
        return revoke_token(token_id, database=self._services.database, clock=self._services.clock)


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
