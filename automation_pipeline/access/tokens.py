"""Machine tokens: create, authenticate and revoke them."""

import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime

from automation_pipeline.access import queries as tokens
from automation_pipeline.access.models import (
    INVALID_REQUEST,
    SECRET_BYTES,
    ApiToken,
    TokenState,
    format_token,
    is_same_hash,
    is_token,
    parse_token_request,
    token_hash,
    token_id_of,
)
from automation_pipeline.access.rules import excess_grants
from automation_pipeline.core.access import Caller
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.storage.database import Database, Session

# The package of organisations is above this one, so callers pass the check.
OrganisationExists = Callable[[Session, str], bool]


@dataclass(frozen=True)
class IssuedToken:
    """`secret` is the whole token, which is shown once."""

    token: ApiToken
    secret: str = field(repr=False)


def _no_organisations(_session: Session, _org_id: str) -> bool:
    return False


def create_token(
    given: Mapping[str, object],
    *,
    database: Database,
    clock: Clock,
    issuer: Caller | None = None,
    organisation_exists: OrganisationExists = _no_organisations,
) -> IssuedToken:
    """Create a token. It expires no later than the issuer's own token.

    `issuer` is None for an operator at the command line. Raises InvalidInputError with one error
    per invalid field, including what exceeds the issuer.
    """
    request, secret = parse_token_request(given), format_token(secrets.token_bytes(SECRET_BYTES))
    faults = () if issuer is None else excess_grants(request, issuer)
    if faults:
        raise InvalidInputError(INVALID_REQUEST, faults)
    with database.transaction() as session:
        if request.org_id is not None and not organisation_exists(session, request.org_id):
            raise InvalidInputError(
                INVALID_REQUEST, (("orgId", f"there is no organisation {request.org_id!r}"),)
            )
        parent = None if issuer is None else token_id_of(issuer)
        end = None if parent is None else tokens.expiry_of(session, parent)
        return IssuedToken(
            tokens.add_token(session, request, secret, clock.now(), not_after=end), secret
        )


def authenticate_token(token_text: str, *, database: Database, now: datetime) -> Caller | None:
    """Return the token's caller, or None if the token is unknown, expired or revoked."""
    if not is_token(token_text):
        return None
    hashed = token_hash(token_text)
    with database.reading() as session:
        token = tokens.find_by_hash(session, hashed)
    if (
        token is None
        or not is_same_hash(token.token_hash, hashed)
        or token.state(now) is not TokenState.ACTIVE
    ):
        return None
    if token.should_record_use(now):
        # A failure to record the use does not refuse the caller.
        with suppress(Exception), database.unless_busy() as session:
            tokens.record_use(session, token.id, now)
    return token.caller()


def revoke_token(
    token_id: int, *, database: Database, clock: Clock, by: Caller | None = None
) -> ApiToken:
    """Revoke a token; safe to repeat. `by` is None for an operator at the command line.

    Raises NotFoundError for an unknown token, and for one that exceeds the caller's permissions.
    """
    with database.transaction() as session:
        token = tokens.revoke(session, token_id, clock.now())
        if by is not None and excess_grants(token, by):
            raise tokens.token_not_found(token_id)
        return token
