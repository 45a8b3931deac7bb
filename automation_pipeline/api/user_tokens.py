"""Users' access tokens: JSON web tokens signed with one secret (HS256), and what their claims grant."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated

import jwt
from pydantic import ConfigDict, Field, StrictBool, StrictInt, StringConstraints

from automation_pipeline.core.access import Action, Caller, Grant, Permission, Scope, united
from automation_pipeline.core.json_model import JsonModel


@dataclass(frozen=True)
class Issuing:
    """How tokens must have been made."""

    secret: str
    issuer: str
    audience: str


class _Claims(JsonModel):
    """Strict in what it reads: what is wrongly written may mean anything. Others may read claims of their own."""

    model_config = ConfigDict(alias_generator=None, extra="ignore")


Text = Annotated[str, StringConstraints(strict=True)]
Name = Annotated[Text, Field(pattern=r"\S")]


class GrantClaim(_Claims):
    key: Text
    read: StrictBool | None = None
    write: StrictBool | None = None
    scope: Text | None = None
    read_scope: Text | None = None
    write_scope: Text | None = None


class UserClaims(_Claims):
    sub: Name
    email: Text | None = None
    crm_user_id: StrictInt | Name | None = None
    groupes: tuple[Text, ...] | None = None
    roles: tuple[Text, ...] | None = None
    permission_grants: tuple[GrantClaim, ...] | None = None


def caller_of(token: str, issuing: Issuing) -> Caller | None:
    """None when anything about the token is wrong; nobody outside learns what."""
    try:
        claims = jwt.decode(
            token,
            issuing.secret,
            algorithms=["HS256"],
            issuer=issuing.issuer,
            audience=issuing.audience,
            options={"require": ["sub", "exp", "iss", "aud"]},
        )
        return _caller(UserClaims.model_validate(claims))
    except (jwt.InvalidTokenError, ValueError):
        return None


def _caller(claims: UserClaims) -> Caller:
    return Caller(
        id=f"user:{claims.sub}",
        name=claims.email or claims.sub,
        grants=united(_grants(claims.permission_grants or ())),
        groupes=frozenset(claims.groupes or ()),
        crm_user_id=None if claims.crm_user_id is None else str(claims.crm_user_id),
        roles=claims.roles or (),
    )


def _grants(given: Iterable[GrantClaim]) -> Iterator[tuple[Permission, Grant]]:
    """A permission that we do not know grants nothing here."""
    for claim in given:
        if claim.key in set(Permission):
            yield Permission(claim.key), Grant(_scope(claim, Action.READ), _scope(claim, Action.WRITE))


def _scope(claim: GrantClaim, action: Action) -> Scope | None:
    """What is granted without a word on how far, or with one that we do not know, reaches least far."""
    is_granted, own = (claim.read, claim.read_scope) if action is Action.READ else (claim.write, claim.write_scope)
    if not is_granted:
        return None
    name = own or claim.scope
    return Scope[name] if name is not None and name in Scope.__members__ else Scope.SELF
