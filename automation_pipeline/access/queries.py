"""Queries of machine tokens."""

from datetime import datetime, timedelta

from sqlalchemy import func, or_, select, update
from sqlalchemy.orm import Session

from automation_pipeline.access.models import (
    USE_RECORD_INTERVAL,
    ApiToken,
    TokenInput,
    token_hash,
    token_prefix,
)
from automation_pipeline.access.tables import ApiTokenRow
from automation_pipeline.core.access import Scope
from automation_pipeline.core.errors import NotFoundError


def add_token(
    session: Session,
    request: TokenInput,
    token: str,
    now: datetime,
    *,
    not_after: datetime | None = None,
) -> ApiToken:
    requested_end = (
        None if request.expires_in_days is None else now + timedelta(days=request.expires_in_days)
    )
    row = ApiTokenRow(
        name=request.name,
        token_hash=token_hash(token),
        prefix=token_prefix(token),
        permissions=list(request.permissions),
        scope=request.scope.name,
        groupes=list(request.groupes),
        crm_user_id=request.crm_user_id,
        org_id=request.org_id,
        created_at=now,
        expires_at=min(
            (end for end in (requested_end, not_after) if end is not None), default=None
        ),
    )
    session.add(row)
    session.flush()
    return _token(row)


def list_tokens(session: Session, *, good_at: datetime | None = None) -> list[ApiToken]:
    """List tokens, newest first. `good_at` leaves out tokens that are expired or revoked at that time."""
    chosen = select(ApiTokenRow).order_by(ApiTokenRow.id.desc())
    if good_at is not None:
        is_unexpired = or_(ApiTokenRow.expires_at.is_(None), ApiTokenRow.expires_at > good_at)
        chosen = chosen.where(ApiTokenRow.revoked_at.is_(None), is_unexpired)
    return [_token(row) for row in session.scalars(chosen)]


def expiry_of(session: Session, token_id: int) -> datetime | None:
    return session.scalar(select(ApiTokenRow.expires_at).where(ApiTokenRow.id == token_id))


def find_by_hash(session: Session, hashed: str) -> ApiToken | None:
    row = session.scalar(select(ApiTokenRow).where(ApiTokenRow.token_hash == hashed))
    return None if row is None else _token(row)


def record_use(session: Session, token_id: int, now: datetime) -> None:
    """Record the use, unless one was recorded shortly before."""
    is_due = or_(
        ApiTokenRow.last_used_at.is_(None), ApiTokenRow.last_used_at <= now - USE_RECORD_INTERVAL
    )
    session.execute(
        update(ApiTokenRow)
        .where(ApiTokenRow.id == token_id, is_due)
        .values(last_used_at=now)
        .execution_options(synchronize_session=False)
    )


def revoke(session: Session, token_id: int, now: datetime) -> ApiToken:
    """Revoke the token; the first revocation counts. Raises NotFoundError."""
    revoking = (
        update(ApiTokenRow)
        .where(ApiTokenRow.id == token_id)
        .values(revoked_at=func.coalesce(ApiTokenRow.revoked_at, now))
        .returning(ApiTokenRow)
        .execution_options(synchronize_session=False, populate_existing=True)
    )
    row = session.scalar(revoking)
    if row is None:
        raise token_not_found(token_id)
    return _token(row)


def token_not_found(token_id: int) -> NotFoundError:
    return NotFoundError(f"Token with ID '{token_id}' not found")


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
