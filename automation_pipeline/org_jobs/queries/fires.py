"""Fires as they are written: each due time once, with the job that it dispatches."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from automation_pipeline.core.errors import AutomationError
from automation_pipeline.org_jobs.models.states import FireOutcome
from automation_pipeline.org_jobs.queries.jobs import NewJob, add_jobs
from automation_pipeline.org_jobs.rules.due import PlannedFire
from automation_pipeline.org_jobs.tables import FireRow
from automation_pipeline.storage.statements import insert_into


@dataclass(frozen=True, kw_only=True)
class NewFire:
    """`job` of one that is dispatched; its `fire_id` is filled in. `fault` of one that cannot
    be."""

    org_id: str
    schedule_id: str
    fire: PlannedFire
    actor: str
    job: NewJob | None = None
    fault: str | None = None
    batch_id: int | None = None
    client_key: str | None = None
    note: str | None = None


@dataclass(frozen=True)
class WrittenFire:
    """`error`: its job could not be made."""

    new: NewFire
    fire_id: int
    job_id: int | None = None
    error: str | None = None

    @property
    def outcome(self) -> FireOutcome:
        if self.new.fire.skip is not None:
            return FireOutcome.SKIPPED
        return FireOutcome.FAILED if self.job_id is None else FireOutcome.DISPATCHED


def write_fires(session: Session, fires: Sequence[NewFire], now: datetime) -> list[WrittenFire]:
    """What was decided upon before, by somebody else, is left out. One whose job cannot be made
    does not keep the others from theirs."""
    quiet = [one for one in fires if one.job is None]
    written = _write(session, quiet, now)
    dispatched = [one for one in fires if one.job is not None]
    if not dispatched:
        return written
    try:
        with session.begin_nested():
            return written + _dispatch(session, dispatched, now)
    except (DBAPIError, AutomationError):
        return written + [done for one in dispatched for done in _dispatch_alone(session, one, now)]


def _dispatch_alone(session: Session, one: NewFire, now: datetime) -> list[WrittenFire]:
    try:
        with session.begin_nested():
            return _dispatch(session, [one], now)
    except (DBAPIError, AutomationError) as error:
        return _write(session, [one], now, fault=f"Its job could not be made: {_words(error)}")


def _dispatch(session: Session, fires: Sequence[NewFire], now: datetime) -> list[WrittenFire]:
    written = _write(session, fires, now)
    jobs = [_of_fire(one) for one in written]
    return [
        WrittenFire(one.new, one.fire_id, job_id)
        for one, job_id in zip(written, add_jobs(session, jobs, now), strict=True)
    ]


def _write(
    session: Session, fires: Sequence[NewFire], now: datetime, fault: str | None = None
) -> list[WrittenFire]:
    """None of them for a due time that is decided upon already: those are told by what comes
    back."""
    if not fires:
        return []
    table = FireRow.__table__
    statement = (
        insert_into(session, FireRow)
        .on_conflict_do_nothing()
        .returning(table.c.id, table.c.schedule_id, table.c.scheduled_for)
    )
    added = session.execute(statement, [_columns(one, now, fault) for one in fires]).tuples()
    ids = {(schedule_id, scheduled_for): id_ for id_, schedule_id, scheduled_for in added}
    return [
        WrittenFire(one, ids[key], error=fault or one.fault)
        for one in fires
        if (key := (one.schedule_id, one.fire.scheduled_for)) in ids
    ]


def _columns(one: NewFire, now: datetime, fault: str | None) -> dict[str, object]:
    error = fault or one.fault
    outcome = (
        FireOutcome.SKIPPED
        if one.fire.skip
        else FireOutcome.FAILED
        if error
        else FireOutcome.DISPATCHED
    )
    return {
        "org_id": one.org_id,
        "schedule_id": one.schedule_id,
        "scheduled_for": one.fire.scheduled_for,
        "effective_for": one.fire.effective_for,
        "fired_at": now,
        "trigger": one.fire.trigger,
        "outcome": outcome,
        "skip_reason": one.fire.skip,
        "batch_id": one.batch_id,
        "client_key": one.client_key,
        "actor": one.actor,
        "error": error,
        "note": one.note,
    }


def _of_fire(one: WrittenFire) -> NewJob:
    assert one.new.job is not None  # noqa: S101  only such are dispatched
    return replace(one.new.job, fire_id=one.fire_id)


def _words(error: Exception) -> str:
    origin = error.orig if isinstance(error, DBAPIError) else error
    return " ".join(str(origin).split())[:500]
