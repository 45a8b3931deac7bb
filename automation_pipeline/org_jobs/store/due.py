"""What the dispatcher reads: schedules that are due, held until the transaction ends, with all that decides."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.org_jobs.domain.due import DueSchedule, Surroundings
from automation_pipeline.org_jobs.domain.policies import MisfirePolicy, OverlapPolicy
from automation_pipeline.org_jobs.domain.states import ACTIVE_RUN_STATES, RunState, ScheduleState
from automation_pipeline.org_jobs.domain.timing import Planned, Timing
from automation_pipeline.org_jobs.store.timings import timing_of
from automation_pipeline.org_jobs.tables import HostRow, JobRow, JobRunRow, OrganisationRow, ScheduleRow, ServerRow
from automation_pipeline.storage.bulk import among

# An agent that is silent for longer is taken for away.
OFFLINE_AFTER = timedelta(minutes=3)

Places = Mapping[int, tuple[ServerRow, HostRow | None]]


@dataclass(frozen=True)
class Candidate:
    """A schedule that is due. Its row belongs to no session: all that are decided upon are written together. `fault`:
    it cannot be read any more, and has no `timing`."""

    row: ScheduleRow
    timing: Timing | None
    schedule: DueSchedule | None
    host_id: int | None
    fault: str | None = None


@dataclass(frozen=True)
class Held:
    """`is_all`: nothing else is due, but for what others hold."""

    candidates: Sequence[Candidate]
    is_all: bool


def hold_due(session: Session, now: datetime, limit: int) -> Held:
    """A fair share for each organisation: the oldest of each, then the next oldest of each. One that another dispatcher
    holds is left to it."""
    rank = func.row_number().over(partition_by=ScheduleRow.org_id, order_by=(ScheduleRow.next_run_at, ScheduleRow.id))
    ranked = select(ScheduleRow.id, ScheduleRow.next_run_at, rank.label("rank")).where(*_is_due(now)).subquery()
    first = select(ranked.c.id).order_by(ranked.c.rank, ranked.c.next_run_at, ranked.c.id).limit(limit)
    chosen = session.scalars(first).all()
    query = select(ScheduleRow).where(among(session, ScheduleRow.id, chosen), *_is_due(now)).order_by(ScheduleRow.id)
    rows = session.scalars(query.with_for_update(skip_locked=True).execution_options(populate_existing=True)).all()
    candidates = _with_surroundings(session, rows, now)
    for row in rows:
        session.expunge(row)
    return Held(candidates, is_all=len(chosen) < limit)


def count_due(session: Session, now: datetime) -> int:
    return session.scalar(select(func.count()).select_from(ScheduleRow).where(*_is_due(now))) or 0


def _is_due(now: datetime) -> tuple[ColumnElement[bool], ...]:
    return (
        ScheduleRow.state == ScheduleState.ACTIVE,
        ScheduleRow.deleted_at.is_(None),
        ScheduleRow.next_run_at <= now,
    )


def _with_surroundings(session: Session, rows: Sequence[ScheduleRow], now: datetime) -> list[Candidate]:
    if not rows:
        return []
    counts = _active_runs(session, [row.id for row in rows])
    places = _places(session, {row.server_instance_id for row in rows if row.server_instance_id is not None})
    organisations = {
        one.id: one
        for one in session.scalars(
            select(OrganisationRow).where(among(session, OrganisationRow.id, {row.org_id for row in rows}))
        )
    }
    return [_candidate(row, counts, places, organisations[row.org_id], now) for row in rows]


def _active_runs(session: Session, schedule_ids: Sequence[str]) -> dict[tuple[str, str], int]:
    """A backfill is beside the plan: its jobs keep nothing from being done."""
    query = (
        select(JobRunRow.schedule_id, JobRunRow.status, func.count())
        .join(JobRow, JobRow.id == JobRunRow.job_id)
        .where(JobRow.batch_id.is_(None))
        .where(among(session, JobRunRow.schedule_id, schedule_ids), JobRunRow.status.in_(ACTIVE_RUN_STATES))
        .group_by(JobRunRow.schedule_id, JobRunRow.status)
    )
    return {(str(id_), status): count for id_, status, count in session.execute(query).tuples()}


def _places(session: Session, server_ids: set[int]) -> Places:
    query = (
        select(ServerRow, HostRow)
        .outerjoin(HostRow, HostRow.id == ServerRow.host_id)
        .where(among(session, ServerRow.id, server_ids))
    )
    return {server.id: (server, host) for server, host in session.execute(query).tuples()}


def _candidate(
    row: ScheduleRow,
    counts: Mapping[tuple[str, str], int],
    places: Places,
    organisation: OrganisationRow,
    now: datetime,
) -> Candidate:
    server, host = places.get(row.server_instance_id or 0, (None, None))
    try:
        timing = timing_of(row)
    except InvalidInputError as error:
        return Candidate(row, None, None, None, str(error))
    assert row.next_scheduled_for is not None  # noqa: S101  a due one has both
    assert row.next_run_at is not None  # noqa: S101  the same
    around = Surroundings(
        at_work=counts.get((row.id, RunState.RUNNING), 0),
        waiting=counts.get((row.id, RunState.PENDING), 0),
        is_disabled=organisation.suspended_at is not None or (server is not None and not server.is_enabled),
        is_in_maintenance=_lasts(organisation.maintenance_until, now)
        or (host is not None and _lasts(host.maintenance_until, now)),
        is_host_offline=row.skip_if_offline and server is not None and _is_away(host, now),
    )
    schedule = DueSchedule(
        timing=timing,
        due=Planned(row.next_scheduled_for, row.next_run_at),
        misfire_policy=MisfirePolicy(row.misfire_policy),
        grace_seconds=row.misfire_grace_s,
        overlap_policy=OverlapPolicy(row.overlap_policy),
        skips_next=row.skip_next_run,
        around=around,
    )
    return Candidate(row, timing, schedule, None if host is None else host.id)


def _lasts(until: datetime | None, now: datetime) -> bool:
    return until is not None and until > now


def _is_away(host: HostRow | None, now: datetime) -> bool:
    return host is None or host.last_seen_at is None or now - host.last_seen_at > OFFLINE_AFTER
