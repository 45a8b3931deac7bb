"""What due detection reads: schedules that may be due, and what is at work. What it writes is in due_starts.py."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache, reduce
from typing import Any

from sqlalchemy import ColumnElement, Row, Text, cast, delete, func, literal, or_, select, update
from sqlalchemy.orm import Session

from automation_pipeline.automation.domain.at_work import AtWork, UnendedRun
from automation_pipeline.automation.domain.due import DueRules, DueSchedule
from automation_pipeline.automation.domain.run import RunStatus
from automation_pipeline.automation.domain.schedule import CatchUp, ScheduleFields, ScheduleType, crons_of
from automation_pipeline.automation.tables import DueTimeRow, HeartbeatRow, RunRow, ScheduleRow
from automation_pipeline.core.cron import Cron
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.wall_clock import zone
from automation_pipeline.storage.bulk import among
from automation_pipeline.storage.instants import database_now

RUNNING = "running"

_AN_INSTANT = timedelta(microseconds=1)
_TIMES = (
    ScheduleRow.cron_expression,
    ScheduleRow.time_of_day,
    ScheduleRow.day_of_week,
    ScheduleRow.day_of_month,
    ScheduleRow.short_months,
)
_TIMING: ColumnElement[str] = reduce(
    lambda text, column: text.concat("|").concat(func.coalesce(cast(column, Text), "")),
    _TIMES,
    ScheduleRow.schedule_type.concat("|").concat(ScheduleRow.timezone),
)
_READ = (
    ScheduleRow.id, ScheduleRow.name, ScheduleRow.schedule_type, ScheduleRow.timezone, *_TIMES,
    ScheduleRow.last_run_status, ScheduleRow.last_run_at, ScheduleRow.last_due_at, ScheduleRow.skip_due_at,
    ScheduleRow.catch_up, ScheduleRow.catch_up_limit, ScheduleRow.jitter_seconds,
    ScheduleRow.created_at, ScheduleRow.updated_at,
    DueTimeRow.next_due_at, DueTimeRow.timing.label("known_timing"), _TIMING.label("timing"),
)  # fmt: skip


@dataclass(frozen=True)
class Candidate:
    """A schedule that may be due, and what it takes to write down its next due time."""

    schedule: DueSchedule
    schedule_type: ScheduleType
    timing: str
    next_due_at: datetime | None


@dataclass
class Candidates:
    """`broken`: what is wrong with schedules that cannot be read, by their ids."""

    readable: list[Candidate] = field(default_factory=list[Candidate])
    broken: dict[int, str] = field(default_factory=dict[int, str])


def schedules_watched(session: Session) -> int:
    return session.scalar(select(func.count()).where(*_watched())) or 0


def hold_candidates(session: Session, now: datetime, rules: DueRules) -> Candidates:
    """Schedules that may be due, those never looked at and those with other times than before included.

    They are held until the transaction ends: what is decided and written meanwhile is decided once, by one process. One
    that another transaction holds is left for the next time.
    """
    query = (
        select(*_READ)
        .outerjoin(DueTimeRow, DueTimeRow.schedule_id == ScheduleRow.id)
        .where(
            *_watched(),
            or_(DueTimeRow.schedule_id.is_(None), DueTimeRow.next_due_at <= now, DueTimeRow.timing != _TIMING),
        )
        .order_by(ScheduleRow.id)
        .with_for_update(of=ScheduleRow, skip_locked=True)
    )
    rows = session.execute(query).all()
    # Asked after the rows are held, so that a run filed for one of them before is seen.
    unended = unended_runs(session, rules.lost_after_seconds)
    candidates = Candidates()
    for row in rows:
        try:
            candidates.readable.append(_candidate(row, unended.get(row.id, ()), rules.window))
        except (InvalidInputError, ValueError) as error:
            candidates.broken[row.id] = str(error)
    return candidates


def work_of_schedules(session: Session, lost_after_seconds: float) -> dict[int, AtWork]:
    """By schedule, paused and MANUAL ones included: those marked as running, or with a run that has not ended."""
    unended = unended_runs(session, lost_after_seconds)
    marked = ScheduleRow.last_run_status == RUNNING
    query = select(ScheduleRow.id, marked, ScheduleRow.last_run_at)
    rows = session.execute(query.where(or_(marked, among(session, ScheduleRow.id, unended)))).tuples()
    return {id_: AtWork(bool(is_marked), last_run_at, unended.get(id_, ())) for id_, is_marked, last_run_at in rows}


def unended_runs(session: Session, lost_after_seconds: float) -> dict[int, tuple[UnendedRun, ...]]:
    """By schedule. A run that was asked for but has not begun counts."""
    alive = HeartbeatRow.beat_at > database_now(-lost_after_seconds)
    rows = session.execute(
        select(RunRow.schedule_id, RunRow.id, RunRow.attempt, RunRow.started_at, func.coalesce(alive, literal(False)))
        .outerjoin(HeartbeatRow, HeartbeatRow.run_id == RunRow.id)
        .where(RunRow.status.in_((RunStatus.PENDING, RunStatus.RUNNING)))
        .order_by(RunRow.id)
    ).tuples()
    runs: defaultdict[int, tuple[UnendedRun, ...]] = defaultdict(tuple)
    for schedule_id, run_id, attempt, started_at, is_alive in rows:
        runs[schedule_id] += (UnendedRun(run_id, attempt, started_at, bool(is_alive)),)
    return dict(runs)


def unmark_running(session: Session, schedule_ids: Iterable[int]) -> None:
    """Those marked as running without a run; not one that a run has begun for meanwhile."""
    has_run = select(RunRow.id).where(
        RunRow.schedule_id == ScheduleRow.id, RunRow.status.in_((RunStatus.PENDING, RunStatus.RUNNING))
    )
    session.execute(
        update(ScheduleRow)
        .where(among(session, ScheduleRow.id, schedule_ids), ScheduleRow.last_run_status == RUNNING, ~has_run.exists())
        .values(last_run_status="failed")
        .execution_options(synchronize_session=False)
    )


def forget_paused(session: Session) -> None:
    """What falls into a pause is never due: after it, the times are looked for anew."""
    paused = select(ScheduleRow.id).where(~ScheduleRow.is_active)
    session.execute(
        delete(DueTimeRow).where(DueTimeRow.schedule_id.in_(paused)).execution_options(synchronize_session=False)
    )


def _watched() -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return (ScheduleRow.is_active.is_(True), ScheduleRow.schedule_type != ScheduleType.MANUAL)


def _candidate(
    row: Row[tuple[Any, ...]], runs: tuple[UnendedRun, ...], window: timedelta
) -> Candidate:  # Any: columns of many kinds
    known = row.known_timing == row.timing
    first_looked_at = row.updated_at.replace(second=0, microsecond=0) - window
    undecided_from = row.next_due_at if known else first_looked_at
    settled = [at for at in (undecided_from - _AN_INSTANT, row.last_due_at) if at is not None]
    schedule = DueSchedule(
        id=row.id,
        name=row.name,
        crons=_crons(row.schedule_type, *row[4:9]),
        zone=zone(row.timezone),
        decided_until=max(settled),
        created_at=row.created_at,
        at_work=AtWork(row.last_run_status == RUNNING, row.last_run_at, runs),
        skip_due_at=row.skip_due_at,
        catch_up=CatchUp(row.catch_up),
        catch_up_limit=row.catch_up_limit,
        jitter_seconds=row.jitter_seconds,
    )
    return Candidate(schedule, ScheduleType(row.schedule_type), row.timing, row.next_due_at if known else None)


@lru_cache(maxsize=4096)
def _crons(
    schedule_type: str, cron_expression: str | None, time_of_day: str | None,
    day_of_week: int | None, day_of_month: int | None, short_months: str,
) -> tuple[Cron, ...]:  # fmt: skip
    fields = ScheduleFields.model_validate(
        {
            "name": "-",
            "schedule_type": schedule_type,
            "cron_expression": cron_expression,
            "time_of_day": time_of_day,
            "day_of_week": day_of_week,
            "day_of_month": day_of_month,
            "short_months": short_months,
        }
    )
    return crons_of(fields)
