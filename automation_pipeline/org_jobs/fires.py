"""Use cases of due times: dispatch the due schedules, and backfill past periods."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from automation_pipeline.core.clock import Clock, iso
from automation_pipeline.core.errors import ConflictError, InvalidInputError, sentence_of
from automation_pipeline.core.json_model import parse
from automation_pipeline.core.metrics import Meter, observe
from automation_pipeline.core.scheduling.timing import Timing
from automation_pipeline.org_jobs.events import FIRE_LATENCY_MS, FIRES
from automation_pipeline.org_jobs.models.job_types import checked_payload
from automation_pipeline.org_jobs.models.jobs import BatchState, FireOutcome, JobType
from automation_pipeline.org_jobs.models.organisations import OrgScope
from automation_pipeline.org_jobs.queries.attempts import SCHEDULER
from automation_pipeline.org_jobs.queries.dispatch import (
    OrgDueCandidate,
    cancel_superseded,
    host_of,
    job_of,
    lock_due_schedules,
    record_decided,
    record_unreadable,
)
from automation_pipeline.org_jobs.queries.fires import (
    Fire,
    add_batch,
    get_backfill,
    jobs_made_between,
    lock_batch,
    stop_batch,
    write_batch,
    write_fires,
)
from automation_pipeline.org_jobs.queries.jobs import NewJob
from automation_pipeline.org_jobs.queries.organisations import add_audit_entry, own_type, own_types
from automation_pipeline.org_jobs.queries.schedules import (
    as_schedule,
    lock_with_organisation,
    timing_of,
)
from automation_pipeline.org_jobs.rules.due import (
    INVALID_BACKFILL,
    Backfill,
    BackfillInput,
    FireDecision,
    PlannedFire,
    check_backfill_count,
    chosen_times,
    decide,
    due_times,
)
from automation_pipeline.org_jobs.tables import OrgScheduleRow
from automation_pipeline.storage.database import Database, Session

FIRE_BATCH = 250
MOST_ROUNDS = 8


@dataclass
class FireReport:
    """How many due times were dispatched, failed and skipped, by reason; `unreadable` counts
    schedules."""

    dispatched: int = 0
    failed: int = 0
    skipped: dict[str, int] = field(default_factory=dict[str, int])
    unreadable: int = 0

    def __str__(self) -> str:
        parts = [f"Dispatched {self.dispatched}"]
        parts += [f"skipped {count} ({reason})" for reason, count in sorted(self.skipped.items())]
        parts += [f"failed {self.failed}"] * bool(self.failed)
        parts += [f"{self.unreadable} no longer valid"] * bool(self.unreadable)
        return "; ".join(parts) + "."


def fire_due_schedules(*, database: Database, clock: Clock, meter: Meter) -> FireReport:
    """Safe to run concurrently with itself. Each round is a transaction with a constant number of
    queries. The rest waits for the next tick."""
    report = FireReport()
    for _ in range(MOST_ROUNDS):
        with database.transaction() as session:
            now = clock.now()
            held, is_all = lock_due_schedules(session, now, FIRE_BATCH)
            written = _fire(session, held, now)
        report.unreadable += sum(one.fault is not None for one in held)
        _count(report, written, meter, now)
        if is_all or not held:  # another process has locked the others
            break
    return report


def _fire(session: Session, held: Sequence[OrgDueCandidate], now: datetime) -> list[Fire]:
    record_unreadable(session, [one for one in held if one.fault is not None], now)
    decided = [(one, decide(one.schedule, now)) for one in held if one.schedule is not None]
    types = own_types(session, {one.row.org_id for one in held}, {one.row.job_type for one in held})
    fires = [
        _new_fire(one, planned, decision, types.get(one.row.org_id, {}))
        for one, decision in decided
        for planned in decision.fires
    ]
    written = write_fires(session, fires, now)
    jobs = {one.schedule_id: one.job_id for one in written if one.job_id is not None}
    superseded = [
        one.row for one, decision in decided if decision.ends_others and one.row.id in jobs
    ]
    cancel_superseded(session, superseded, now, except_job_ids=jobs.values())
    by_schedule: defaultdict[str, list[Fire]] = defaultdict(list)
    for one in written:
        by_schedule[one.schedule_id].append(one)
    record_decided(session, decided, by_schedule, now)
    return written


def _new_fire(
    candidate: OrgDueCandidate,
    planned: PlannedFire,
    decision: FireDecision,
    own_types: Mapping[str, JobType],
) -> Fire:
    row, schedule = candidate.row, candidate.schedule
    fire = Fire(org_id=row.org_id, schedule_id=row.id, planned=planned, actor=SCHEDULER)
    if decision.is_cut and planned is decision.fires[0]:
        fire = replace(fire, note="Earlier missed due times are not listed.")
    if planned.skip is not None or schedule is None:
        return fire
    try:
        job = job_of(row, schedule.timing, planned.scheduled_for, candidate.host_id, own_types)
    except InvalidInputError as error:
        return replace(fire, fault=str(error))
    if not schedule.timing.is_open(planned.effective_for):
        # A window that the clock change skips has no start, so it cannot say when the job may
        # start.
        job = replace(job, start_window=None)
    return replace(fire, job=job)


def _count(report: FireReport, written: Sequence[Fire], meter: Meter, now: datetime) -> None:
    for one in written:
        reason = one.planned.skip or ""
        meter.count(FIRES, outcome=one.outcome.lower(), reason=reason)
        match one.outcome:
            case FireOutcome.DISPATCHED:
                report.dispatched += 1
                latency = now - one.planned.effective_for
                observe(meter, FIRE_LATENCY_MS, latency.total_seconds() * 1000)
            case FireOutcome.SKIPPED:
                report.skipped[reason] = report.skipped.get(reason, 0) + 1
            case FireOutcome.FAILED:
                report.failed += 1


def backfill_schedule(  # noqa: PLR0913  the collaborators by name
    schedule_id: str,
    given: Mapping[str, object],
    *,
    within: OrgScope,
    database: Database,
    clock: Clock,
    actor: str,
    call_origins: Collection[str] = (),
) -> Backfill:
    """Create the jobs of a past period, all or none; a dry run writes nothing. Raises
    InvalidInputError for more jobs than the limit. Raises ConflictError if the organisation is
    suspended, or the schedule is no longer valid."""
    request = parse(BackfillInput, given, INVALID_BACKFILL)
    with database.transaction() as session:
        row, organisation = lock_with_organisation(session, schedule_id, within)
        if organisation.suspended_at is not None:
            raise ConflictError(f"Organisation '{organisation.id}' is suspended: resume it first.")
        now = clock.now()
        timing, job = _read(session, row, now, call_origins)
        done = jobs_made_between(session, row, request.from_at, min(request.until_at, now))
        times = chosen_times(
            due_times(timing, request, now), done, request.behaviour, as_schedule(row).planned
        )
        wanted = [one for one in times if one.left_out is None]
        check_backfill_count(len(wanted), request.limit)
        if request.dry_run:
            return Backfill.model_validate(
                {
                    "id": None,
                    "org_id": row.org_id,
                    "schedule_id": row.id,
                    "status": None,
                    "behaviour": request.behaviour,
                    "from_at": request.from_at,
                    "until_at": request.until_at,
                    "dry_run": True,
                    "total": len(wanted),
                    "created_by": actor,
                    "created_at": now,
                    "times": times,
                }
            )
        batch = add_batch(session, row, request, actor, now)
        write_batch(session, row, batch, wanted, job=job, now=now)
        add_audit_entry(
            session,
            org_id=row.org_id,
            actor=actor,
            action="backfill",
            entity="schedule",
            entity_id=row.id,
            after={
                "batchId": str(batch.id),
                "from": iso(request.from_at),
                "until": iso(request.until_at),
                "behaviour": request.behaviour,
                "total": batch.total,
            },
            now=now,
        )
        return get_backfill(session, batch.id, within)


def _read(
    session: Session, row: OrgScheduleRow, now: datetime, call_origins: Collection[str]
) -> tuple[Timing, NewJob]:
    """The timing, and a job that starts when the window is open."""
    try:
        timing = timing_of(row)
        own_types = own_type(session, row.org_id, row.job_type)
        job = job_of(row, timing, now, host_of(session, row), own_types)
        checked_payload(job.type, job.payload, call_origins=call_origins)
    except InvalidInputError as error:
        raise ConflictError(
            f"Schedule {row.id} is no longer valid, correct it first: {sentence_of(error)}"
        ) from None
    opens_at = (
        None
        if timing.is_open(now) or timing.window is None
        else timing.window.clamp(now, timing.zone)
    )
    return timing, replace(job, not_before=opens_at)


CANCELLED = "Its backfill was cancelled."


def cancel_backfill(
    batch_id: int,
    *,
    within: OrgScope,
    database: Database,
    clock: Clock,
    actor: str,
    reason: str | None = None,
) -> Backfill:
    """Safe to repeat. Raises ConflictError if all jobs have ended."""
    with database.transaction() as session:
        batch, now = lock_batch(session, batch_id, within), clock.now()
        if batch.status == BatchState.CANCELLED:
            return get_backfill(session, batch_id, within)
        if batch.status != BatchState.RUNNING:
            raise ConflictError(f"Backfill {batch_id} has ended: there is nothing to cancel.")
        batch.status, batch.finished_at = BatchState.CANCELLED, now
        stop_batch(session, batch, actor, now, f"{CANCELLED} {reason}" if reason else CANCELLED)
        add_audit_entry(
            session,
            org_id=batch.org_id,
            actor=actor,
            action="cancel",
            entity="backfill",
            entity_id=str(batch_id),
            reason=reason,
            now=now,
        )
        return get_backfill(session, batch_id, within)
