"""A stored token: what it may do, whether it is still good, and how people see it."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from automation_pipeline.access.domain.permissions import OF_ORGANISATIONS, grants_of
from automation_pipeline.core.access import Caller, Scope
from automation_pipeline.core.instants import iso

USES_ARE_NOTED_EVERY = timedelta(minutes=1)
_CALLER = "token:"


class TokenState(StrEnum):
    ACTIVE = "active"
    EXPIRED = "expired"
    REVOKED = "revoked"


@dataclass(frozen=True, kw_only=True)
class ApiToken:
    """`prefix` is the token's beginning. What it may do is said in plain words. One of an organisation reaches all of
    that, and nothing else."""

    id: int
    name: str
    token_hash: str = field(repr=False)
    prefix: str
    permissions: tuple[str, ...]
    scope: Scope
    groupes: tuple[str, ...]
    crm_user_id: str | None
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None
    org_id: str | None = None

    def state(self, now: datetime) -> TokenState:
        if self.revoked_at is not None:
            return TokenState.REVOKED
        is_over = self.expires_at is not None and self.expires_at <= now
        return TokenState.EXPIRED if is_over else TokenState.ACTIVE

    def is_use_worth_noting(self, now: datetime) -> bool:
        return self.last_used_at is None or now - self.last_used_at >= USES_ARE_NOTED_EVERY

    def caller(self) -> Caller:
        """Whatever is stored, one of an organisation may do nothing beyond it."""
        granted = grants_of(self.permissions, self.scope).items()
        return Caller(
            id=f"{_CALLER}{self.id}",
            grants={name: grant for name, grant in granted if self.org_id is None or name in OF_ORGANISATIONS},
            name=self.name,
            groupes=frozenset(self.groupes),
            crm_user_id=self.crm_user_id,
            org_id=self.org_id,
        )


def token_id_of(caller: Caller) -> int | None:
    """None: it is not by a stored token that they call."""
    return int(caller.id.removeprefix(_CALLER)) if caller.id.startswith(_CALLER) else None


def token_document(token: ApiToken, now: datetime) -> dict[str, object]:
    """Without the secret, which nobody has."""
    return {
        "id": str(token.id),
        "name": token.name,
        "prefix": token.prefix,
        "state": token.state(now).value,
        "permissions": list(token.permissions),
        "scope": token.scope.name,
        "groupes": list(token.groupes),
        "crmUserId": token.crm_user_id,
        "orgId": token.org_id,
        "createdAt": iso(token.created_at),
        "expiresAt": _written(token.expires_at),
        "lastUsedAt": _written(token.last_used_at),
        "revokedAt": _written(token.revoked_at),
    }


def _written(instant: datetime | None) -> str | None:
    return None if instant is None else iso(instant)
