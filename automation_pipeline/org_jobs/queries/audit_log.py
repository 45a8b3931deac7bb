"""Who changed what of an organisation: written with the change itself, and read page by page."""

from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from automation_pipeline.org_jobs.models.organisations import AuditEntry, OrgScope
from automation_pipeline.org_jobs.tables import AuditLogRow


def add_audit_entry(  # noqa: PLR0913  who did what to what, and why
    session: Session,
    *,
    org_id: str,
    actor: str,
    action: str,
    entity: str,
    entity_id: str,
    before: Mapping[str, object] | None = None,
    after: Mapping[str, object] | None = None,
    reason: str | None = None,
    now: datetime,
) -> None:
    """Such as `pause` of a `schedule`. `before` and `after` are JSON."""
    session.add(
        AuditLogRow(
            org_id=org_id,
            actor=actor,
            action=action,
            entity=entity,
            entity_id=entity_id,
            before=None if before is None else dict(before),
            after=None if after is None else dict(after),
            reason=reason,
            at=now,
        )
    )


def audit_log(  # noqa: PLR0913  what narrows it, by name
    session: Session,
    within: OrgScope,
    *,
    entity: str | None = None,
    entity_id: str | None = None,
    limit: int,
    after_id: int = 0,
    newest_first: bool = False,
) -> list[AuditEntry]:
    """Oldest first, unless the newest are wanted; `after_id` is the last one of the page before."""
    query = select(AuditLogRow)
    if within.org_id is not None:
        query = query.where(AuditLogRow.org_id == within.org_id)
    if entity is not None:
        query = query.where(AuditLogRow.entity == entity)
    if entity_id is not None:
        query = query.where(AuditLogRow.entity_id == entity_id)
    if newest_first:
        query = query.where(AuditLogRow.id < after_id) if after_id else query
        query = query.order_by(AuditLogRow.id.desc())
    else:
        query = query.where(AuditLogRow.id > after_id).order_by(AuditLogRow.id)
    return [_entry(row) for row in session.scalars(query.limit(limit))]


def _entry(row: AuditLogRow) -> AuditEntry:
    return AuditEntry.model_validate({name: getattr(row, name) for name in AuditEntry.model_fields})
