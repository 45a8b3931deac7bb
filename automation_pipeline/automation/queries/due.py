"""Queries of due detection: schedules that may be due, the runs that start, and decided
occurrences."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from functools import lru_cache, reduce
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Row,
    Text,
    bindparam,
    cast,
    delete,
    func,
    literal,
    or_,
    select,
    update,
)
from sqlalchemy.orm import Session

from automation_pipeline.automation.models.runs import RunStatus, Trigger
from automation_pipeline.automation.models.schedules import (
    TIMING_FIELDS,
    CatchUp,
    OccurrenceShown,
    ScheduleFields,
    ScheduleType,
    crons_of,
)
from automation_pipeline.automation.queries.runs import run_request
from automation_pipeline.automation.rules.schedules import (
    WAITS,
    DuePolicy,
    DueSchedule,
    ScheduleWork,
    SkippedOccurrence,
    UnendedRun,
)
from automation_pipeline.automation.tables import (
    DueTimeRow,
    HeartbeatRow,
    OccurrenceRow,
    RunRow,
    ScheduleRow,
)
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.scheduling.cron import Cron, OverlapPolicy
from automation_pipeline.core.scheduling.timing import Timing
from automation_pipeline.core.scheduling.zones import zone
from automation_pipeline.storage.run_requests import file_requests
from automation_pipeline.storage.statements import among, database_now, insert_into, upsert

RUNNING = "running"
_BUFFERS = (OverlapPolicy.BUFFER_ONE, OverlapPolicy.BUFFER_ALL)

_AN_INSTANT = timedelta(microseconds=1)
_TIMING_COLUMNS = tuple(ScheduleRow.__table__.c[name] for name in TIMING_FIELDS)
_TIMING: ColumnElement[str] = reduce(
    lambda text, column: text.concat("|").concat(column),
    [func.coalesce(cast(column, Text), "") for column in _TIMING_COLUMNS],
)
_READ = (
    ScheduleRow.id, ScheduleRow.name, *_TIMING_COLUMNS,
    ScheduleRow.last_run_status, ScheduleRow.last_run_at, ScheduleRow.last_due_at, ScheduleRow.skip_due_at,
    ScheduleRow.catch_up, ScheduleRow.catch_up_limit, ScheduleRow.jitter_seconds,
    ScheduleRow.overlap_policy, ScheduleRow.excluded_on,
    ScheduleRow.created_at, ScheduleRow.updated_at,
    DueTimeRow.next_due_at, DueTimeRow.timing.label("known_timing"), _TIMING.label("timing"),
)  # fmt: skip


@dataclass(frozen=True)
class DueCandidate:
    """A schedule that may be due, and the timing that its next due time was recorded with."""

    schedule: DueSchedule
    schedule_type: ScheduleType
    timing: str
    next_due_at: datetime | None


@dataclass
class DueCandidates:
    """`broken`: the errors of invalid schedules, by id."""

    readable: list[DueCandidate] = field(default_factory=list[DueCandidate])
    broken: dict[int, str] = field(default_factory=dict[int, str])


def schedules_watched(session: Session) -> int:
    return session.scalar(select(func.count()).where(*_watched())) or 0


def lock_candidates(session: Session, now: datetime, rules: DuePolicy) -> DueCandidates:
    """Lock the schedules that may be due, and those that are new or have a changed timing.

    The locks last until the transaction ends, so that only one process decides each due time. Rows
    that another transaction holds wait for the next check.
    """
    query = (
        select(*_READ)
        .outerjoin(DueTimeRow, DueTimeRow.schedule_id == ScheduleRow.id)
        .where(
            *_watched(),
            or_(
                DueTimeRow.schedule_id.is_(None),
                DueTimeRow.next_due_at <= now,
                DueTimeRow.timing != _TIMING,
            ),
        )
        .order_by(ScheduleRow.id)
        .with_for_update(of=ScheduleRow, skip_locked=True)
    )
    rows = session.execute(query).all()
    # Read after locking, so that runs filed earlier are visible.
    unended = unended_runs_by_schedule(session, rules.lost_after_seconds)
    waited = _waited(session, [row.id for row in rows if row.overlap_policy in _BUFFERS])
    candidates = DueCandidates()
    for row in rows:
        runs = unended.get(row.id, ())
        try:
            candidates.readable.append(
                _due_candidate(row, runs, frozenset(waited[row.id]), rules.window)
            )
        except (InvalidInputError, ValueError) as error:
            candidates.broken[row.id] = str(error)
    return candidates


def work_of_schedules(session: Session, lost_after_seconds: float) -> dict[int, ScheduleWork]:
    """The running mark and the unfinished runs by schedule, including paused and MANUAL
    schedules."""
    unended = unended_runs_by_schedule(session, lost_after_seconds)
    marked = ScheduleRow.last_run_status == RUNNING
    query = select(ScheduleRow.id, marked, ScheduleRow.last_run_at)
    rows = session.execute(
        query.where(or_(marked, among(session, ScheduleRow.id, unended)))
    ).tuples()
    return {
        id_: ScheduleWork(bool(is_marked), last_run_at, unended.get(id_, ()))
        for id_, is_marked, last_run_at in rows
    }


def unended_runs_by_schedule(
    session: Session, lost_after_seconds: float
) -> dict[int, tuple[UnendedRun, ...]]:
    """Unfinished runs by schedule, including runs that have not started."""
    alive = HeartbeatRow.beat_at > database_now(-lost_after_seconds)
    rows = session.execute(
        select(
            RunRow.schedule_id,
            RunRow.id,
            RunRow.attempt,
            RunRow.started_at,
            func.coalesce(alive, literal(False)),
        )
        .outerjoin(HeartbeatRow, HeartbeatRow.run_id == RunRow.id)
        .where(RunRow.status.in_((RunStatus.PENDING, RunStatus.RUNNING)))
        .order_by(RunRow.id)
    ).tuples()
    runs: defaultdict[int, tuple[UnendedRun, ...]] = defaultdict(tuple)
    for schedule_id, run_id, attempt, started_at, is_alive in rows:
        runs[schedule_id] += (UnendedRun(run_id, attempt, started_at, bool(is_alive)),)
    return dict(runs)


def unmark_running(session: Session, schedule_ids: Iterable[int]) -> None:
    """Remove the running mark of schedules that have no run, unless they got one in the
    meantime."""
    has_run = select(RunRow.id).where(
        RunRow.schedule_id == ScheduleRow.id,
        RunRow.status.in_((RunStatus.PENDING, RunStatus.RUNNING)),
    )
    session.execute(
        update(ScheduleRow)
        .where(
            among(session, ScheduleRow.id, schedule_ids),
            ScheduleRow.last_run_status == RUNNING,
            ~has_run.exists(),
        )
        .values(last_run_status="failed")
        .execution_options(synchronize_session=False)
    )


def forget_paused(session: Session) -> None:
    """Due times during a pause never run: after the pause, the next due time is computed again."""
    paused = select(ScheduleRow.id).where(~ScheduleRow.is_active)
    session.execute(
        delete(DueTimeRow)
        .where(DueTimeRow.schedule_id.in_(paused))
        .execution_options(synchronize_session=False)
    )


def _watched() -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return (ScheduleRow.is_active.is_(True), ScheduleRow.schedule_type != ScheduleType.MANUAL)


def _waited(session: Session, schedule_ids: Sequence[int]) -> Mapping[int, set[datetime]]:
    """By schedule, the due times that wait for the end of a run."""
    waited: defaultdict[int, set[datetime]] = defaultdict(set)
    if schedule_ids:
        waiting = (
            among(session, OccurrenceRow.schedule_id, schedule_ids),
            OccurrenceRow.not_run_because == WAITS,
        )
        query = select(OccurrenceRow.schedule_id, OccurrenceRow.due_at).where(*waiting)
        for schedule_id, due_at in session.execute(query).tuples():
            waited[schedule_id].add(due_at)
    return waited


def _due_candidate(
    row: Row[tuple[Any, ...]],  # Any: columns of many kinds
    runs: tuple[UnendedRun, ...],
    waited: frozenset[datetime],
    window: timedelta,
) -> DueCandidate:
    known = row.known_timing == row.timing
    checked_since = row.updated_at.replace(second=0, microsecond=0) - window
    undecided_from = row.next_due_at if known else checked_since
    decided = [at for at in (undecided_from - _AN_INSTANT, row.last_due_at) if at is not None]
    timing = Timing(
        crons=_crons(*(getattr(row, name) for name in TIMING_FIELDS)),
        zone=zone(row.timezone),
        seed=str(row.id),
        jitter_seconds=row.jitter_seconds,
        excluded_on=frozenset(map(date.fromisoformat, row.excluded_on)),
    )
    schedule = DueSchedule(
        id=row.id,
        name=row.name,
        timing=timing,
        decided_until=max(decided),
        created_at=row.created_at,
        at_work=ScheduleWork(row.last_run_status == RUNNING, row.last_run_at, runs),
        skip_due_at=row.skip_due_at,
        catch_up=CatchUp(row.catch_up),
        catch_up_limit=row.catch_up_limit,
        overlap_policy=OverlapPolicy(row.overlap_policy),
        waited=waited,
    )
    next_due_at = row.next_due_at if known else None
    return DueCandidate(schedule, ScheduleType(row.schedule_type), row.timing, next_due_at)


@lru_cache(maxsize=4096)  # thousands of schedules share a few hundred timings
def _crons(*timing: object) -> tuple[Cron, ...]:
    named = dict(zip(TIMING_FIELDS, timing, strict=True))
    return crons_of(ScheduleFields.model_validate({"name": "-", **named}))


@dataclass(frozen=True)
class DueStart:
    """A due time that gets a run."""

    candidate: DueCandidate
    due_at: datetime

    @property
    def schedule_id(self) -> int:
        return self.candidate.schedule.id

    @property
    def key(self) -> str:
        return f"automation-schedule-{self.schedule_id}-{round(self.due_at.timestamp() * 1000)}"


def start_runs(session: Session, starts: Sequence[DueStart], now: datetime) -> dict[DueStart, int]:
    """File the runs with their requests, mark their schedules, and return the ids. A due time that
    already has a run is skipped."""
    if not starts:
        return {}
    insert = insert_into(session, RunRow).on_conflict_do_nothing(index_elements=["request_key"])
    table = RunRow.__table__
    inserted = session.execute(
        insert.returning(table.c.request_key, table.c.id),
        [_run_row(start, now) for start in starts],
    ).tuples()
    ids: dict[str, int] = dict(iter(inserted))
    started = {start: ids[start.key] for start in starts if start.key in ids}
    file_requests(
        session,
        [
            run_request(start.key, start.schedule_id, run_id, Trigger.SCHEDULE, due_at=start.due_at)
            for start, run_id in started.items()
        ],
        now,
    )
    marks = [{"started": start.schedule_id, "due_at": start.due_at} for start in started]
    if marks:
        change = (
            update(ScheduleRow)
            .where(ScheduleRow.id == bindparam("started"))
            .values(last_run_status=RUNNING, last_run_at=bindparam("due_at"))
        )
        session.connection().execute(change, marks)
    decided = [(start.schedule_id, start.due_at, run_id, None) for start, run_id in started.items()]
    _record_occurrences(session, decided, now)
    return started


def record_not_run(
    session: Session, not_run: Sequence[tuple[int, SkippedOccurrence]], now: datetime
) -> None:
    decided = [(id_, entry.due_at, None, entry.because) for id_, entry in not_run]
    _record_occurrences(session, decided, now)


def _record_occurrences(
    session: Session,
    decided: Sequence[tuple[int, datetime, int | None, str | None]],
    now: datetime,
) -> None:
    """Each due time is recorded once, except that a waiting one later gets its run or its
    reason."""
    names = ("schedule_id", "due_at", "run_id", "not_run_because")
    upsert(
        session,
        OccurrenceRow,
        [{**dict(zip(names, one, strict=True)), "decided_at": now} for one in decided],
        key=("schedule_id", "due_at"),
        fields=("run_id", "not_run_because", "decided_at"),
        where=OccurrenceRow.not_run_because == WAITS,
    )


def forget_waiting(session: Session, schedule_id: int, because: str) -> None:
    """Record another reason for the waiting due times: they will not run."""
    session.execute(
        update(OccurrenceRow)
        .where(OccurrenceRow.schedule_id == schedule_id, OccurrenceRow.not_run_because == WAITS)
        .values(not_run_because=because)
        .execution_options(synchronize_session=False)
    )


def record_decided(session: Session, until: Mapping[int, datetime]) -> None:
    if not until:
        return
    change = (
        update(ScheduleRow)
        .where(ScheduleRow.id == bindparam("decided"))
        .values(last_due_at=bindparam("until"))
    )
    session.connection().execute(
        change, [{"decided": id_, "until": due_at} for id_, due_at in until.items()]
    )


def record_next_due(session: Session, changed: Sequence[tuple[DueCandidate, datetime]]) -> None:
    rows = [
        {"schedule_id": candidate.schedule.id, "next_due_at": due_at, "timing": candidate.timing}
        for candidate, due_at in changed
    ]
    upsert(session, DueTimeRow, rows, key=("schedule_id",), fields=("next_due_at", "timing"))


def _run_row(start: DueStart, now: datetime) -> dict[str, object]:
    schedule = {
        "name": start.candidate.schedule.name,
        "scheduleType": start.candidate.schedule_type,
    }
    return {
        "schedule_id": start.schedule_id,
        "status": RunStatus.PENDING,
        "trigger": Trigger.SCHEDULE,
        "due_at": start.due_at,
        "request_key": start.key,
        "started_at": now,
        "config_snapshot": {
            "schedule": schedule,
            "overrides": None,
            "due_at": start.due_at.isoformat(),
        },
    }


def decided_occurrences(session: Session, schedule_id: int, limit: int) -> list[OccurrenceShown]:
    """The last decided due times, newest first."""
    query = (
        select(
            OccurrenceRow.due_at,
            OccurrenceRow.run_id,
            RunRow.status.label("run_status"),
            OccurrenceRow.not_run_because,
            OccurrenceRow.decided_at,
        )
        .outerjoin(RunRow, RunRow.id == OccurrenceRow.run_id)
        .where(OccurrenceRow.schedule_id == schedule_id)
        .order_by(OccurrenceRow.due_at.desc())
        .limit(limit)
    )
    rows = session.execute(query).mappings()
    return [OccurrenceShown.model_validate(dict(row)) for row in rows]
