"""Audits asked for together: what was asked, how far it is, and the end, told once."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import bindparam, func, insert, select, update
from sqlalchemy.orm import Session

from automation_pipeline.audits.tables import AuditBatchItemRow, AuditBatchRow, AuditRow
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.storage.instants import database_now
from automation_pipeline.storage.prepared import execute
from automation_pipeline.storage.run_requests import RunRequestRow

# Of every audit, which is seldom of a batch.
_END_ITEM = (
    update(AuditBatchItemRow)
    .where(AuditBatchItemRow.tracking_id == bindparam("audit"), AuditBatchItemRow.state == "pending")
    .values(state=bindparam("then"), error=bindparam("why"), finished_at=bindparam("at"))
    .returning(AuditBatchItemRow.batch_id)
)


@dataclass(frozen=True)
class BatchStanding:
    """`failures` are the fiches whose audit failed, with the reason."""

    batch_id: str
    audit_config_id: int
    total: int
    succeeded: int
    failed: int
    started_at: datetime
    completed_at: datetime | None
    failures: Sequence[tuple[str, str]] = ()

    @property
    def ended(self) -> int:
        return self.succeeded + self.failed


def add_batch(
    session: Session, batch_id: str, audit_config_id: int, items: Sequence[tuple[str, str]], now: datetime
) -> None:
    """`items` are fiches with the tracking ids of their audits."""
    counts = {"total": len(items), "succeeded": 0, "failed": 0}
    session.execute(
        insert(AuditBatchRow), [{"id": batch_id, "audit_config_id": audit_config_id, **counts, "started_at": now}]
    )
    rows = [
        {"batch_id": batch_id, "fiche_id": fiche_id, "tracking_id": tracking_id, "state": "pending"}
        for fiche_id, tracking_id in items
    ]
    if rows:
        session.execute(insert(AuditBatchItemRow), rows)


def end_item(session: Session, tracking_id: str, error: str | None, now: datetime) -> BatchStanding | None:
    """How the batch stands now, if the audit is of one and its end was not counted before."""
    told = {"audit": tracking_id, "then": "failed" if error else "completed", "why": error, "at": now}
    batch_id = execute(session, _END_ITEM, told).value()
    if batch_id is None:
        return None
    # The row is locked by this, so the last of the items sees all the others.
    succeeded, failed = int(error is None), int(error is not None)
    session.execute(
        update(AuditBatchRow)
        .where(AuditBatchRow.id == batch_id)
        .values(succeeded=AuditBatchRow.succeeded + succeeded, failed=AuditBatchRow.failed + failed)
        .execution_options(synchronize_session=False)
    )
    session.execute(
        update(AuditBatchRow)
        .where(
            AuditBatchRow.id == batch_id,
            AuditBatchRow.completed_at.is_(None),
            AuditBatchRow.succeeded + AuditBatchRow.failed >= AuditBatchRow.total,
        )
        .values(completed_at=now)
        .execution_options(synchronize_session=False)
    )
    return batch_standing(session, batch_id)


def batch_standing(session: Session, batch_id: str) -> BatchStanding:
    row = session.scalars(
        select(AuditBatchRow).where(AuditBatchRow.id == batch_id).execution_options(populate_existing=True)
    ).one_or_none()
    if row is None:
        raise NotFoundError(f"Batch {batch_id} not found")
    failed = select(AuditBatchItemRow.fiche_id, func.coalesce(AuditBatchItemRow.error, "")).where(
        AuditBatchItemRow.batch_id == batch_id, AuditBatchItemRow.state == "failed"
    )
    failures = [*session.execute(failed.order_by(AuditBatchItemRow.fiche_id)).tuples()]
    return BatchStanding(
        row.id,
        row.audit_config_id,
        row.total,
        row.succeeded,
        row.failed,
        row.started_at,
        row.completed_at,
        failures,
    )


def fiches_of_batch(session: Session, batch_id: str) -> list[str]:
    """None of a batch that does not exist."""
    return list(session.scalars(select(AuditBatchItemRow.fiche_id).where(AuditBatchItemRow.batch_id == batch_id)))


def pending_items(session: Session, *, limit: int) -> list[str]:
    """Tracking ids of audits that batches still wait for, the oldest first."""
    waiting = select(AuditBatchItemRow.tracking_id).where(AuditBatchItemRow.state == "pending")
    return list(session.scalars(waiting.order_by(AuditBatchItemRow.id).limit(limit)))


def items_never_begun(session: Session, asked_before_seconds: float, *, limit: int) -> list[str]:
    """Tracking ids of audits that batches still wait for, whose request was filed so long ago and taken by a Dagster
    run, and of which there is no row all the same; the oldest first."""
    waiting = (
        select(AuditBatchItemRow.tracking_id)
        .join(RunRequestRow, RunRequestRow.request_key == AuditBatchItemRow.tracking_id)
        .outerjoin(AuditRow, AuditRow.tracking_id == AuditBatchItemRow.tracking_id)
        .where(
            AuditBatchItemRow.state == "pending",
            RunRequestRow.state == "taken",
            RunRequestRow.created_at <= database_now(-asked_before_seconds),
            AuditRow.id.is_(None),
        )
    )
    return list(session.scalars(waiting.order_by(AuditBatchItemRow.id).limit(limit)))
