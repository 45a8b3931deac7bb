"""Queries of requested audits: batches, what became of requests, and the automation that they
belong to."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    bindparam,
    column,
    exists,
    func,
    insert,
    select,
    table,
    update,
)
from sqlalchemy.orm import Session

from automation_pipeline.audits.models.audits import AuditSummary
from automation_pipeline.audits.queries.audits import summaries_by_tracking_id
from automation_pipeline.audits.tables import (
    AuditBatchItemRow,
    AuditBatchRow,
    AuditRow,
    RerunEventRow,
)
from automation_pipeline.core.errors import InvalidInputError, NotFoundError
from automation_pipeline.storage.clock import database_now
from automation_pipeline.storage.prepared import execute
from automation_pipeline.storage.run_requests import RunRequestRow, refusals, taken

# Of every audit, which is seldom of a batch.
_END_ITEM = (
    update(AuditBatchItemRow)
    .where(
        AuditBatchItemRow.tracking_id == bindparam("audit"), AuditBatchItemRow.state == "pending"
    )
    .values(state=bindparam("then"), error=bindparam("why"), finished_at=bindparam("at"))
    .returning(AuditBatchItemRow.batch_id)
)


@dataclass(frozen=True)
class AuditBatchSummary:
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
    session: Session,
    batch_id: str,
    audit_config_id: int,
    items: Sequence[tuple[str, str]],
    now: datetime,
) -> None:
    """`items` are fiches with the tracking ids of their audits."""
    counts = {"total": len(items), "succeeded": 0, "failed": 0}
    session.execute(
        insert(AuditBatchRow),
        [{"id": batch_id, "audit_config_id": audit_config_id, **counts, "started_at": now}],
    )
    rows = [
        {"batch_id": batch_id, "fiche_id": fiche_id, "tracking_id": tracking_id, "state": "pending"}
        for fiche_id, tracking_id in items
    ]
    if rows:
        session.execute(insert(AuditBatchItemRow), rows)


def end_item(
    session: Session, tracking_id: str, error: str | None, now: datetime
) -> AuditBatchSummary | None:
    """How the batch stands now, if the audit is of one and its end was not counted before."""
    payload = {
        "audit": tracking_id,
        "then": "failed" if error else "completed",
        "why": error,
        "at": now,
    }
    batch_id = execute(session, _END_ITEM, payload).value()
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
    return batch_summary(session, batch_id)


def batch_summary(session: Session, batch_id: str) -> AuditBatchSummary:
    row = session.scalars(
        select(AuditBatchRow)
        .where(AuditBatchRow.id == batch_id)
        .execution_options(populate_existing=True)
    ).one_or_none()
    if row is None:
        raise NotFoundError(f"Batch {batch_id} not found")
    failed = select(AuditBatchItemRow.fiche_id, func.coalesce(AuditBatchItemRow.error, "")).where(
        AuditBatchItemRow.batch_id == batch_id, AuditBatchItemRow.state == "failed"
    )
    failures = [*session.execute(failed.order_by(AuditBatchItemRow.fiche_id)).tuples()]
    return AuditBatchSummary(
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
    return list(
        session.scalars(
            select(AuditBatchItemRow.fiche_id).where(AuditBatchItemRow.batch_id == batch_id)
        )
    )


def pending_items(session: Session, *, limit: int) -> list[str]:
    """Tracking ids of audits that batches still wait for, the oldest first."""
    waiting = select(AuditBatchItemRow.tracking_id).where(AuditBatchItemRow.state == "pending")
    return list(session.scalars(waiting.order_by(AuditBatchItemRow.id).limit(limit)))


def items_never_started(session: Session, asked_before_seconds: float, *, limit: int) -> list[str]:
    """Tracking ids of audits that batches still wait for, whose request was filed so long ago and
    taken by a Dagster run, and of which there is no row all the same; the oldest first."""
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


@dataclass(frozen=True)
class RerunStatus:
    """`error`: it came to nothing."""

    begun: bool
    done: bool
    error: str | None = None


def audit_request_outcomes(
    session: Session, tracking_ids: Sequence[str]
) -> dict[str, AuditSummary | str]:
    """By tracking id, in that order, of those that have begun or never will."""
    refused, begun = (
        refusals(session, tracking_ids),
        summaries_by_tracking_id(session, tracking_ids),
    )
    found: dict[str, AuditSummary | str] = {**refused, **begun}
    return {key: found[key] for key in dict.fromkeys(tracking_ids) if key in found}


def rerun_request_outcomes(session: Session, rerun_ids: Sequence[str]) -> dict[str, RerunStatus]:
    """All of them: one that nobody knows has not begun."""
    refused, begun = refusals(session, rerun_ids), taken(session, rerun_ids)
    done = set(
        session.scalars(select(RerunEventRow.rerun_id).where(RerunEventRow.rerun_id.in_(rerun_ids)))
    )
    return {
        key: RerunStatus(key in begun or key in done, key in done, refused.get(key))
        for key in rerun_ids
    }


def is_awaited_by_batch() -> ColumnElement[bool]:
    """A condition on rows of RunRequestRow: whether the audit ever began is known by its request
    alone."""
    return exists().where(
        AuditBatchItemRow.tracking_id == RunRequestRow.request_key,
        AuditBatchItemRow.state == "pending",
    )


_TABLES = {"automation_schedule_id": "automation_schedules", "automation_run_id": "automation_runs"}


def check_automation_links(session: Session, links: dict[str, int | None], complaint: str) -> None:
    """InvalidInputError for what does not exist, and for a run of another schedule. `links` are
    named as the columns of the audit."""
    missing = [
        name
        for name, row_id in links.items()
        if row_id is not None and not _exists(session, name, row_id)
    ]
    if missing:
        raise InvalidInputError(complaint, tuple((name, "does not exist") for name in missing))
    schedule_id, run_id = links.get("automation_schedule_id"), links.get("automation_run_id")
    if (
        schedule_id is not None
        and run_id is not None
        and _schedule_of(session, run_id) != schedule_id
    ):
        raise InvalidInputError(complaint, (("automation_run_id", "belongs to another schedule"),))


def _exists(session: Session, name: str, row_id: int) -> bool:
    linked = table(_TABLES[name], column("id", BigInteger))
    return session.scalar(select(linked.c.id).where(linked.c.id == row_id)) is not None


def _schedule_of(session: Session, run_id: int) -> int | None:
    runs = table(
        _TABLES["automation_run_id"], column("id", BigInteger), column("schedule_id", BigInteger)
    )
    return session.scalar(select(runs.c.schedule_id).where(runs.c.id == run_id))
