"""Authentication by machine tokens and user tokens (JWT)."""

import hashlib
import hmac
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated

import jwt
from pydantic import ConfigDict, Field, StrictBool, StrictInt, StringConstraints
from starlette.datastructures import Headers

from automation_pipeline.access.tokens import authenticate_token
from automation_pipeline.api.errors import AuthenticationError
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.access import (
    Action,
    Caller,
    Grant,
    Permission,
    Scope,
    whole_grants,
    widest_grants,
)
from automation_pipeline.core.json_model import JsonModel


@dataclass(frozen=True)
class JwtSettings:
    """The secret, issuer and audience of valid user tokens."""

    secret: str
    issuer: str
    audience: str


class _Claims(JsonModel):
    """A claim of the wrong type makes the token invalid. Unknown claims are ignored."""

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


def caller_of(token: str, expected: JwtSettings) -> Caller | None:
    """Return the caller that a user token describes, or None for an invalid token."""
    try:
        decoded = jwt.decode(
            token,
            expected.secret,
            algorithms=["HS256"],
            issuer=expected.issuer,
            audience=expected.audience,
            options={"require": ["sub", "exp", "iss", "aud"]},
        )
        claims = UserClaims.model_validate(decoded)
    except (jwt.InvalidTokenError, ValueError):
        return None
    return Caller(
        id=f"user:{claims.sub}",
        name=claims.email or claims.sub,
        grants=widest_grants(_grants(claims.permission_grants or ())),
        groupes=frozenset(claims.groupes or ()),
        crm_user_id=None if claims.crm_user_id is None else str(claims.crm_user_id),
        roles=claims.roles or (),
    )


def _grants(claims: Iterable[GrantClaim]) -> Iterator[tuple[Permission, Grant]]:
    """Yield the grants. Unknown permissions are ignored."""
    for claim in claims:
        if claim.key in set(Permission):
            yield (
                Permission(claim.key),
                Grant(_scope(claim, Action.READ), _scope(claim, Action.WRITE)),
            )


def _scope(claim: GrantClaim, action: Action) -> Scope | None:
    """Return the scope for the action. Without a known scope it is the narrowest one."""
    is_granted, action_scope = (
        (claim.read, claim.read_scope)
        if action is Action.READ
        else (claim.write, claim.write_scope)
    )
    if not is_granted:
        return None
    name = action_scope or claim.scope
    return Scope[name] if name is not None and name in Scope.__members__ else Scope.SELF


INVALID_CREDENTIALS = "Missing or invalid credentials"
MAX_TOKEN_LENGTH = 8192


def authenticate(headers: Headers, services: Services) -> Caller:
    """Return the caller. Raises AuthenticationError with the same message for every reason."""
    token = token_in(headers)
    if token is None or len(token) > MAX_TOKEN_LENGTH:
        raise AuthenticationError(INVALID_CREDENTIALS)
    caller = _caller_of_any(token, services)
    if caller is None:
        raise AuthenticationError(INVALID_CREDENTIALS)
    return caller


def token_in(headers: Headers) -> str | None:
    kind, _, token = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer" and token.strip():
        return token.strip()
    return headers.get("x-api-key")


def _caller_of_any(token: str, services: Services) -> Caller | None:
    """Return the caller of a token of the environment, a user token or a stored token."""
    settings = services.settings
    # The list compares all tokens, so that the time does not depend on the one that matches.
    digest = hashlib.sha256(token.encode(errors="surrogateescape")).digest()
    known = [token.get_secret_value().encode() for token in settings.api_auth_tokens]
    matches = [hmac.compare_digest(digest, hashlib.sha256(one).digest()) for one in known]
    if any(matches):
        return Caller("machine:environment", whole_grants(), name="API_AUTH_TOKENS")
    if token.count(".") == 2:  # only a JWT has two dots
        secret = settings.jwt_access_secret
        if secret is None:
            return None
        return caller_of(
            token,
            JwtSettings(secret.get_secret_value(), settings.jwt_issuer, settings.jwt_audience),
        )
    return authenticate_token(token, database=services.database, now=services.clock.now())
