"""Machine tokens: create, list, authenticate and revoke them."""

import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy import func, or_, select, update
from sqlalchemy.orm import Session

from automation_pipeline.access.models import (
    INVALID_REQUEST,
    SECRET_BYTES,
    USE_RECORD_INTERVAL,
    ApiToken,
    TokenState,
    excess_grants,
    format_token,
    is_token,
    parse_token_request,
    token_hash,
    token_id_of,
    token_prefix,
)
from automation_pipeline.access.tables import ApiTokenRow
from automation_pipeline.core.access import Caller, Scope
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import InvalidInputError, NotFoundError
from automation_pipeline.storage.database import Database

# The layer of organisations is above this one, so callers pass the function.
OrganisationExists = Callable[[Session, str], bool]


@dataclass(frozen=True)
class IssuedToken:
    """`secret` is the whole token, which is shown once."""

    token: ApiToken
    secret: str = field(repr=False)


def create_token(
    given: Mapping[str, object],
    *,
    database: Database,
    clock: Clock,
    issuer: Caller | None = None,
    organisation_exists: OrganisationExists | None = None,
) -> IssuedToken:
    """Create a token. It expires no later than the issuer's own token.

    `issuer` is None for an operator at the command line. Raises InvalidInputError with one error
    per invalid field, including what exceeds the issuer.
    """
    request, secret = parse_token_request(given), format_token(secrets.token_bytes(SECRET_BYTES))
    faults = () if issuer is None else excess_grants(request, issuer)
    org_id, now = request.org_id, clock.now()
    with database.transaction() as session:
        is_known = org_id is None or (
            organisation_exists is not None and organisation_exists(session, org_id)
        )
        if not faults and not is_known:
            faults = (("orgId", f"there is no organisation {org_id!r}"),)
        if faults:
            raise InvalidInputError(INVALID_REQUEST, faults)
        ends: list[datetime | None] = []
        if request.expires_in_days is not None:
            ends.append(now + timedelta(days=request.expires_in_days))
        parent = None if issuer is None else token_id_of(issuer)
        if parent is not None:
            expiry = select(ApiTokenRow.expires_at).where(ApiTokenRow.id == parent)
            ends.append(session.scalar(expiry))
        row = ApiTokenRow(
            name=request.name,
            token_hash=token_hash(secret),
            prefix=token_prefix(secret),
            permissions=list(request.permissions),
            scope=request.scope.name,
            groupes=list(request.groupes),
            crm_user_id=request.crm_user_id,
            org_id=org_id,
            created_at=now,
            expires_at=min((end for end in ends if end is not None), default=None),
        )
        session.add(row)
        session.flush()
        return IssuedToken(_token(row), secret)


def list_tokens(session: Session, *, active_at: datetime | None = None) -> list[ApiToken]:
    """List tokens, newest first. `active_at` excludes tokens that are expired or revoked at that time."""
    statement = select(ApiTokenRow).order_by(ApiTokenRow.id.desc())
    if active_at is not None:
        is_unexpired = or_(ApiTokenRow.expires_at.is_(None), ApiTokenRow.expires_at > active_at)
        statement = statement.where(ApiTokenRow.revoked_at.is_(None), is_unexpired)
    return [_token(row) for row in session.scalars(statement)]


def authenticate_token(token_text: str, *, database: Database, now: datetime) -> Caller | None:
    """Return the token's caller, or None if the token is unknown, expired or revoked."""
    if not is_token(token_text):
        return None
    is_presented = ApiTokenRow.token_hash == token_hash(token_text)
    with database.reading() as session:
        row = session.scalar(select(ApiTokenRow).where(is_presented))
        token = None if row is None else _token(row)
    if token is None or token.state(now) is not TokenState.ACTIVE:
        return None
    if token.should_record_use(now):
        # A failure to record the use does not reject the caller.
        with suppress(Exception), database.unless_busy() as session:
            _record_use(session, token.id, now)
    return token.caller()


def _record_use(session: Session, token_id: int, now: datetime) -> None:
    """Record the use, unless another process has just recorded one."""
    last = ApiTokenRow.last_used_at
    is_due = or_(last.is_(None), last <= now - USE_RECORD_INTERVAL)
    recorded = update(ApiTokenRow).where(ApiTokenRow.id == token_id, is_due)
    session.execute(recorded.values(last_used_at=now).execution_options(synchronize_session=False))


def revoke_token(
    token_id: int, *, database: Database, clock: Clock, by: Caller | None = None
) -> ApiToken:
    """Revoke a token; repeating it keeps the first time. `by` is None for an operator at the command line.

    Raises NotFoundError for an unknown token, and for one that exceeds the caller's permissions.
    """
    with database.transaction() as session:
        revoked = (
            update(ApiTokenRow)
            .where(ApiTokenRow.id == token_id)
            .values(revoked_at=func.coalesce(ApiTokenRow.revoked_at, clock.now()))
            .returning(ApiTokenRow)
            .execution_options(synchronize_session=False, populate_existing=True)
        )
        row = session.scalar(revoked)
        token = None if row is None else _token(row)
        if token is None or (by is not None and excess_grants(token, by)):
            raise NotFoundError(f"Token with ID '{token_id}' not found")
        return token


def _token(row: ApiTokenRow) -> ApiToken:
    return ApiToken(
        id=row.id,
        name=row.name,
        token_hash=row.token_hash,
        prefix=row.prefix,
        permissions=tuple(row.permissions),
        scope=Scope[row.scope],
        groupes=tuple(row.groupes),
        crm_user_id=row.crm_user_id,
        created_at=row.created_at,
        expires_at=row.expires_at,
        last_used_at=row.last_used_at,
        revoked_at=row.revoked_at,
        org_id=row.org_id,
    )
