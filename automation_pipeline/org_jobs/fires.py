"""Decide each due schedule once: dispatch its job, or record the reason why not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.metrics import Meter, observe
from automation_pipeline.org_jobs.events import FIRE_LATENCY_MS, FIRES
from automation_pipeline.org_jobs.models.jobs import JobType
from automation_pipeline.org_jobs.models.states import FireOutcome
from automation_pipeline.org_jobs.queries.attempts import SCHEDULER
from automation_pipeline.org_jobs.queries.dispatch import (
    OrgDueCandidate,
    cancel_superseded,
    job_of,
    lock_due_schedules,
    record_decided,
    record_unreadable,
)
from automation_pipeline.org_jobs.queries.fires import NewFire, WrittenFire, write_fires
from automation_pipeline.org_jobs.queries.jobs import NewJob
from automation_pipeline.org_jobs.queries.organisations import own_types
from automation_pipeline.org_jobs.rules.due import FireDecision, PlannedFire, decide
from automation_pipeline.storage.database import Database, Session

FIRE_BATCH = 250
MOST_ROUNDS = 8


@dataclass
class FireReport:
    """By outcome; skips by their reason."""

    dispatched: int = 0
    failed: int = 0
    skipped: dict[str, int] = field(default_factory=dict[str, int])
    unreadable: int = 0

    def __str__(self) -> str:
        parts = [f"Dispatched {self.dispatched}"]
        parts += [f"skipped {count} ({reason})" for reason, count in sorted(self.skipped.items())]
        parts += [f"failed {self.failed}"] * bool(self.failed)
        parts += [f"{self.unreadable} cannot be read any more"] * bool(self.unreadable)
        return "; ".join(parts) + "."


def fire_due_schedules(*, database: Database, clock: Clock, meter: Meter) -> FireReport:
    """Safe beside another copy of itself. Each round is a transaction of a constant number of
    queries; what is left is for the next look."""
    report = FireReport()
    for _ in range(MOST_ROUNDS):
        with database.transaction() as session:
            now = clock.now()
            held = lock_due_schedules(session, now, FIRE_BATCH)
            written = _fire(session, held.candidates, now)
        _count(report, held.candidates, written, meter, now)
        if held.is_all or not held.candidates:  # what is left is somebody else's
            break
    return report


def _fire(session: Session, held: Sequence[OrgDueCandidate], now: datetime) -> list[WrittenFire]:
    record_unreadable(session, [one for one in held if one.fault is not None], now)
    decided = [(one, decide(one.schedule, now)) for one in held if one.schedule is not None]
    types = own_types(session, {one.row.org_id for one in held}, {one.row.job_type for one in held})
    fires = [
        _new_fire(one, fire, decision, types.get(one.row.org_id, {}))
        for one, decision in decided
        for fire in decision.fires
    ]
    written = write_fires(session, fires, now)
    jobs = {one.new.schedule_id: one.job_id for one in written if one.job_id is not None}
    taking_over = [
        one.row for one, decision in decided if decision.ends_others and one.row.id in jobs
    ]
    cancel_superseded(session, taking_over, now, sparing=jobs.values())
    record_decided(session, decided, _by_schedule(written), now)
    return written


def _by_schedule(written: Sequence[WrittenFire]) -> Mapping[str, Sequence[WrittenFire]]:
    by_schedule: dict[str, list[WrittenFire]] = {}
    for one in written:
        by_schedule.setdefault(one.new.schedule_id, []).append(one)
    return by_schedule


def _new_fire(
    candidate: OrgDueCandidate,
    fire: PlannedFire,
    decision: FireDecision,
    own_types: Mapping[str, JobType],
) -> NewFire:
    row, note = candidate.row, None
    if decision.is_cut and fire is decision.fires[0]:
        note = "More was missed before this, which is not listed."
    if fire.skip is not None:
        return NewFire(org_id=row.org_id, schedule_id=row.id, fire=fire, actor=SCHEDULER, note=note)
    try:
        job = _job(candidate, fire, own_types)
    except InvalidInputError as error:
        return NewFire(
            org_id=row.org_id, schedule_id=row.id, fire=fire, actor=SCHEDULER, fault=str(error)
        )
    return NewFire(
        org_id=row.org_id, schedule_id=row.id, fire=fire, actor=SCHEDULER, job=job, note=note
    )


def _job(candidate: OrgDueCandidate, fire: PlannedFire, own_types: Mapping[str, JobType]) -> NewJob:
    row = candidate.row
    assert candidate.timing is not None  # noqa: S101  it was read: it is decided upon
    job = job_of(row, candidate.timing, fire.scheduled_for, candidate.host_id, own_types)
    # A window that the clock has skipped begins outside of itself: it cannot say when the job may
    # begin.
    return job if candidate.timing.is_open(fire.effective_for) else replace(job, start_window=None)


def _count(
    report: FireReport,
    held: Sequence[OrgDueCandidate],
    written: Sequence[WrittenFire],
    meter: Meter,
    now: datetime,
) -> None:
    report.unreadable += sum(one.fault is not None for one in held)
    for one in written:
        reason = one.new.fire.skip or ""
        meter.count(FIRES, outcome=one.outcome.lower(), reason=reason)
        match one.outcome:
            case FireOutcome.DISPATCHED:
                report.dispatched += 1
                observe(
                    meter,
                    FIRE_LATENCY_MS,
                    (now - one.new.fire.effective_for).total_seconds() * 1000,
                )
            case FireOutcome.SKIPPED:
                report.skipped[reason] = report.skipped.get(reason, 0) + 1
            case FireOutcome.FAILED:
                report.failed += 1
