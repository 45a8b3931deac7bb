"""Who calls: a machine by its token, from the environment or the database, or a user by an access token."""

import hashlib
import hmac
from collections.abc import Iterable

from starlette.datastructures import Headers

from automation_pipeline.access.stages.recognise_token import recognise_token
from automation_pipeline.api.errors import AuthenticationError
from automation_pipeline.api.user_tokens import Issuing, caller_of
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.access import Caller, whole_grants

NOBODY = "Missing or invalid credentials"
LONGEST = 8192


def authenticate(headers: Headers, services: Services) -> Caller:
    """AuthenticationError, the same one for every reason."""
    token = presented(headers)
    caller = None if token is None or len(token) > LONGEST else _recognise(token, services)
    if caller is None:
        raise AuthenticationError(NOBODY)
    return caller


def presented(headers: Headers) -> str | None:
    kind, _, token = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer" and token.strip():
        return token.strip()
    return headers.get("x-api-key")


def _recognise(token: str, services: Services) -> Caller | None:
    settings = services.settings
    if _is_among(token, (known.get_secret_value() for known in settings.api_auth_tokens)):
        return Caller("machine:environment", whole_grants(), name="API_AUTH_TOKENS")
    if token.count(".") == 2:  # only a web token has two, ours have none
        secret = settings.jwt_access_secret
        if secret is None:
            return None
        return caller_of(token, Issuing(secret.get_secret_value(), settings.jwt_issuer, settings.jwt_audience))
    return recognise_token(token, database=services.database, now=services.clock.now())


def _is_among(token: str, known: Iterable[str]) -> bool:
    """Takes as long whichever it is, and if it is none."""
    given = hashlib.sha256(token.encode(errors="surrogateescape")).digest()
    same = [hmac.compare_digest(given, hashlib.sha256(one.encode()).digest()) for one in known]
    return any(same)
