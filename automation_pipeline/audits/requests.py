"""Requests of audits and reruns. Each files a run request and returns its id immediately.

Several audits form a batch, which has one status."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    case,
    column,
    exists,
    insert,
    select,
    table,
    update,
)
from sqlalchemy.orm import Session

from automation_pipeline.audits.configs import get_config
from automation_pipeline.audits.events import batch_item_ended
from automation_pipeline.audits.models.audits import (
    AuditBatchSummary,
    AuditStatus,
    AuditSummary,
    StepLocation,
    rerun_id,
)
from automation_pipeline.audits.queries.audits import audits_by_tracking_id, get_changeable_audit
from automation_pipeline.audits.queries.steps import get_step
from automation_pipeline.audits.tables import (
    AuditBatchItemRow,
    AuditBatchRow,
    AuditRow,
    RerunEventRow,
)
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import text_fault
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.run_requests import (
    NewRunRequest,
    RunRequestRow,
    file_requests,
    refusals,
    taken,
)
from automation_pipeline.storage.statements import among, database_now, database_time

AUDIT_JOB = "audit_fiche"
RERUN_JOB = "audit_rerun"
INVALID_REQUEST = "The audit request is not valid"
MAX_INSTRUCTIONS = 5_000

_IS_PENDING = AuditBatchItemRow.state == "pending"
_SCHEDULES = table("automation_schedules", column("id", BigInteger))
_RUNS = table("automation_runs", column("id", BigInteger), column("schedule_id", BigInteger))


@dataclass(frozen=True, kw_only=True)
class AuditRequestOptions:
    """Options of the requested audits. A `batch` has one status for all. `schedule_id` and `run_id` name
    the automation."""

    audit_config_id: int
    use_rlm: bool = False
    trigger_source: str = "api"
    user_id: str | None = None
    batch: bool = False
    schedule_id: int | None = None
    run_id: int | None = None

    @property
    def linkage(self) -> dict[str, int | None]:
        return {"automation_schedule_id": self.schedule_id, "automation_run_id": self.run_id}


@dataclass(frozen=True)
class RequestedAudit:
    """`tracking_id` is known at once, the audit's own id when it starts."""

    fiche_id: str
    tracking_id: str


@dataclass(frozen=True)
class FiledAudits:
    audits: Sequence[RequestedAudit]
    batch_id: str | None


def request_audits(
    fiche_ids: Sequence[str], options: AuditRequestOptions, *, database: Database, clock: Clock
) -> FiledAudits:
    """File one request per distinct fiche. An inactive configuration is allowed.

    Raises NotFoundError for an unknown configuration, InvalidInputError for an unknown automation.
    """
    now, config_id = clock.now(), options.audit_config_id
    batch_id = str(uuid.uuid4()) if options.batch else None
    prefix, suffix = f"batch-{batch_id}-", ""
    if batch_id is None:
        prefix, suffix = "", f"-{round(now.timestamp() * 1000)}"
    audits = [
        RequestedAudit(fiche_id, f"{prefix}audit-{fiche_id}-{config_id}{suffix}")
        for fiche_id in dict.fromkeys(fiche_ids)
    ]
    with database.transaction() as session:
        get_config(session, config_id)
        check_automation_links(session, options.linkage, INVALID_REQUEST)
        if batch_id:
            add_batch(session, batch_id, config_id, audits, now)
        file_requests(session, [_run_request(audit, options) for audit in audits], now)
    return FiledAudits(audits, batch_id)


def _run_request(audit: RequestedAudit, options: AuditRequestOptions) -> NewRunRequest:
    config: dict[str, object] = {
        "tracking_id": audit.tracking_id,
        "fiche_id": audit.fiche_id,
        "audit_config_id": options.audit_config_id,
        "use_rlm": options.use_rlm,
        "trigger_source": "batch" if options.batch else options.trigger_source,
    }
    optional = {"user_id": options.user_id, **options.linkage}
    config.update((name, value) for name, value in optional.items() if value is not None)
    tags = {
        "automation/fiche_id": audit.fiche_id,
        "automation/audit_config_id": str(options.audit_config_id),
        "automation/trace_id": audit.tracking_id,
        # A single audit, whose requester waits, has priority over audits of batches.
        "dagster/priority": "0" if options.batch else "10",
    }
    return NewRunRequest(audit.tracking_id, AUDIT_JOB, config, tags)


def add_batch(
    session: Session,
    batch_id: str,
    audit_config_id: int,
    audits: Sequence[RequestedAudit],
    now: datetime,
) -> None:
    batch = {"id": batch_id, "audit_config_id": audit_config_id, "started_at": now}
    session.execute(
        insert(AuditBatchRow), [{**batch, "total": len(audits), "succeeded": 0, "failed": 0}]
    )
    items = [{**vars(audit), "batch_id": batch_id, "state": "pending"} for audit in audits]
    if items:
        session.execute(insert(AuditBatchItemRow), items)


def check_automation_links(session: Session, links: dict[str, int | None], complaint: str) -> None:
    """Raise InvalidInputError for what does not exist, and for a run of another schedule. `links` has the
    names of the audit's columns."""
    tables = {"automation_schedule_id": _SCHEDULES, "automation_run_id": _RUNS}
    faults = [
        (name, "does not exist")
        for name, row_id in links.items()
        if row_id is not None
        and not session.scalar(select(exists().where(tables[name].c.id == row_id)))
    ]
    schedule_id, run_id = links.get("automation_schedule_id"), links.get("automation_run_id")
    if not faults and schedule_id is not None and run_id is not None:
        schedule_of_run = select(_RUNS.c.schedule_id).where(_RUNS.c.id == run_id)
        if session.scalar(schedule_of_run) != schedule_id:
            faults = [("automation_run_id", "belongs to another schedule")]
    if faults:
        raise InvalidInputError(complaint, tuple(faults))


@dataclass(frozen=True)
class RequestedRerun:
    rerun_id: str
    event_id: str


def request_rerun(
    location: StepLocation, *, instructions: str | None = None, database: Database, clock: Clock
) -> RequestedRerun:
    """Request a rerun. Raises NotFoundError for an unknown step or control point, and ConflictError
    unless the audit is completed."""
    prompt, event_id = validate_instructions(instructions), str(uuid.uuid4())
    key = rerun_id(location, event_id)
    with database.transaction() as session:
        found = get_changeable_audit(session, location.audit_id)
        get_step(session, location)
        config: dict[str, object] = {
            "audit_id": location.audit_id,
            "step_position": location.position,
            "rerun_id": key,
        }
        optional = {"control_point_index": location.point, "custom_prompt": prompt}
        config.update((name, value) for name, value in optional.items() if value is not None)
        tags = {
            "automation/fiche_id": found.summary.fiche_id,
            "automation/audit_id": str(location.audit_id),
            "automation/trace_id": key,
            "dagster/priority": "10",
        }
        file_requests(session, [NewRunRequest(key, RERUN_JOB, config, tags)], clock.now())
    return RequestedRerun(key, event_id)


def validate_instructions(given: str | None) -> str | None:
    """Strip the instructions; None for blank ones. Raises InvalidInputError for texts that are too long or
    that no database can store."""
    text = (given or "").strip()
    problem = text_fault(text)
    if len(text) > MAX_INSTRUCTIONS:
        problem = f"must have at most {MAX_INSTRUCTIONS} characters"
    if problem:
        raise InvalidInputError("The rerun cannot be accepted", (("instructions", problem),))
    return text or None


def audit_request_outcomes(
    session: Session, tracking_ids: Sequence[str]
) -> dict[str, AuditSummary | str]:
    """By tracking id, in the given order: the audit, or why there will be none. Waiting requests
    are omitted."""
    found: dict[str, AuditSummary | str] = {
        **refusals(session, tracking_ids),
        **{
            key: record.summary
            for key, record in audits_by_tracking_id(session, tracking_ids).items()
        },
    }
    return {key: found[key] for key in dict.fromkeys(tracking_ids) if key in found}


@dataclass(frozen=True)
class RerunStatus:
    """`refused` says why the request was refused."""

    begun: bool
    done: bool
    refused: str | None = None


def rerun_request_outcomes(session: Session, rerun_ids: Sequence[str]) -> dict[str, RerunStatus]:
    """By rerun id; an unknown rerun has not started."""
    refused, started = refusals(session, rerun_ids), taken(session, rerun_ids)
    done = set(
        session.scalars(select(RerunEventRow.rerun_id).where(RerunEventRow.rerun_id.in_(rerun_ids)))
    )
    return {
        key: RerunStatus(key in started or key in done, key in done, refused.get(key))
        for key in rerun_ids
    }


def end_items(session: Session, audits: Sequence[AuditSummary]) -> None:
    """Count the ended audits in their batches, if they have one. An incomplete audit counts as failed."""
    if not audits:
        return
    by_tracking_id = {audit.tracking_id: audit for audit in audits}
    waited_for = select(AuditBatchItemRow.tracking_id).where(
        among(session, AuditBatchItemRow.tracking_id, list(by_tracking_id)), _IS_PENDING
    )
    for tracking_id in session.scalars(waited_for.order_by(AuditBatchItemRow.id)).all():
        audit = by_tracking_id[tracking_id]
        is_complete = audit.status is AuditStatus.COMPLETED
        end_item(session, tracking_id, None if is_complete else audit.error)


def end_item(session: Session, tracking_id: str, error: str | None) -> AuditBatchSummary | None:
    """Count the end of an audit, once, and return its batch. None if it has none."""
    now = database_time(session)
    batch_id = session.scalar(
        update(AuditBatchItemRow)
        .where(AuditBatchItemRow.tracking_id == tracking_id, _IS_PENDING)
        .values(state="failed" if error else "completed", error=error, finished_at=now)
        .returning(AuditBatchItemRow.batch_id)
        .execution_options(synchronize_session=False)
    )
    if batch_id is None:
        return None
    # This locks the batch, so that the last item sees the others.
    succeeded = AuditBatchRow.succeeded + int(error is None)
    failed = AuditBatchRow.failed + int(error is not None)
    is_last = AuditBatchRow.completed_at.is_(None) & (succeeded + failed >= AuditBatchRow.total)
    counted = (
        update(AuditBatchRow)
        .where(AuditBatchRow.id == batch_id)
        .values(
            succeeded=succeeded,
            failed=failed,
            completed_at=case((is_last, now), else_=AuditBatchRow.completed_at),
        )
        .returning(
            AuditBatchRow.id,
            AuditBatchRow.total,
            AuditBatchRow.succeeded,
            AuditBatchRow.failed,
            AuditBatchRow.started_at,
            AuditBatchRow.completed_at,
        )
        .execution_options(synchronize_session=False)
    )
    batch = AuditBatchSummary(*session.execute(counted).tuples().one())
    enqueue(session, batch_item_ended(batch, now))
    return batch


def fiches_of_batch(session: Session, batch_id: str) -> list[str]:
    return list(
        session.scalars(
            select(AuditBatchItemRow.fiche_id).where(AuditBatchItemRow.batch_id == batch_id)
        )
    )


def pending_items(session: Session, *, limit: int) -> list[str]:
    """Tracking ids of audits for which batches wait, oldest first."""
    return list(
        session.scalars(
            select(AuditBatchItemRow.tracking_id)
            .where(_IS_PENDING)
            .order_by(AuditBatchItemRow.id)
            .limit(limit)
        )
    )


def items_never_started(
    session: Session, requested_before_seconds: float, *, limit: int
) -> list[str]:
    """Tracking ids of audits for which batches wait, oldest first, without a row although a Dagster
    run took their request that long ago."""
    return list(
        session.scalars(
            select(AuditBatchItemRow.tracking_id)
            .join(RunRequestRow, RunRequestRow.request_key == AuditBatchItemRow.tracking_id)
            .outerjoin(AuditRow, AuditRow.tracking_id == AuditBatchItemRow.tracking_id)
            .where(
                _IS_PENDING,
                RunRequestRow.state == "taken",
                RunRequestRow.created_at <= database_now(-requested_before_seconds),
                AuditRow.id.is_(None),
            )
            .order_by(AuditBatchItemRow.id)
            .limit(limit)
        )
    )


def is_awaited_by_batch() -> ColumnElement[bool]:
    """A condition on rows of RunRequestRow. Retention keeps such a request, because nothing else shows
    whether its audit started."""
    return exists().where(AuditBatchItemRow.tracking_id == RunRequestRow.request_key, _IS_PENDING)
