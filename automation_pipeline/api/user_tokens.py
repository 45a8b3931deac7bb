"""Users' access tokens: JSON web tokens signed with one secret (HS256), and what their claims grant."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import jwt

from automation_pipeline.core.access import Caller, Grant, Permission, Scope, united


@dataclass(frozen=True)
class Issuing:
    """How tokens must have been made."""

    secret: str
    issuer: str
    audience: str


def caller_of(token: str, issuing: Issuing) -> Caller | None:
    """None when anything about the token is wrong; nobody outside learns what."""
    try:
        claims = cast(
            "Mapping[str, object]",
            jwt.decode(
                token,
                issuing.secret,
                algorithms=["HS256"],
                issuer=issuing.issuer,
                audience=issuing.audience,
                options={"require": ["sub", "exp", "iss", "aud"]},
            ),
        )
    except (jwt.InvalidTokenError, ValueError):
        return None
    return _caller(claims)


def _caller(claims: Mapping[str, object]) -> Caller:
    crm_user = claims.get("crm_user_id")
    return Caller(
        id=f"user:{claims['sub']}",
        name=str(claims.get("email") or claims["sub"]),
        grants=united(_grants(_list(claims.get("permission_grants")))),
        groupes=frozenset(str(groupe) for groupe in _list(claims.get("groupes"))),
        crm_user_id=None if crm_user is None else str(crm_user),
        roles=tuple(str(role) for role in _list(claims.get("roles"))),
    )


def _grants(given: Sequence[object]) -> Iterator[tuple[Permission, Grant]]:
    """A permission that we do not know grants nothing here."""
    for entry in given:
        if not isinstance(entry, Mapping):
            continue
        grant = cast("Mapping[str, object]", entry)
        if grant.get("key") in set(Permission):
            yield Permission(str(grant["key"])), Grant(_scope(grant, "read"), _scope(grant, "write"))


def _scope(grant: Mapping[str, object], action: str) -> Scope | None:
    """What is granted without a word on how far reaches least far."""
    if grant.get(action) is not True:
        return None
    name = grant.get(f"{action}_scope") or grant.get("scope")
    return Scope[name] if isinstance(name, str) and name in Scope.__members__ else Scope.SELF


def _list(value: object) -> Sequence[object]:
    return cast("Sequence[object]", value) if isinstance(value, list) else ()
