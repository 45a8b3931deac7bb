"""What must hold before an attempt may begin, and what counts as being at work, as conditions of queries."""

from datetime import datetime

from sqlalchemy import ColumnElement, Text, and_, exists, literal_column, or_
from sqlalchemy.orm import InstrumentedAttribute, aliased

from automation_pipeline.org_jobs.domain.states import ACTIVE_RUN_STATES, RunState
from automation_pipeline.org_jobs.tables import HostRow, JobRow, JobRunRow, OrganisationRow, ServerRow
from automation_pipeline.storage.claims import RowClaims

Run = JobRunRow


RUNS = RowClaims(Run, Run.id, owner=Run.lease_owner, token=Run.lease_token, until=Run.lease_until)


def is_free() -> ColumnElement[bool]:
    return RUNS.is_free()


def is_at_work() -> ColumnElement[bool]:
    """It runs, or somebody has taken it and will begin."""
    is_claimed = and_(Run.status == RunState.PENDING, RUNS.is_held())
    return or_(Run.status == RunState.RUNNING, is_claimed)


def is_waiting(now: datetime) -> ColumnElement[bool]:
    """It has nobody, its time has come, and no run before it in its line is left."""
    return and_(is_due(now), ~_has_one_before_it())


def is_due(now: datetime) -> ColumnElement[bool]:
    """It has nobody, and its time has come."""
    has_come = or_(Run.next_attempt_at.is_(None), Run.next_attempt_at <= now)
    return and_(Run.status == RunState.PENDING, Run.cancel_requested_at.is_(None), is_free(), has_come)


def is_open(now: datetime) -> ColumnElement[bool]:
    """Of organisations: neither suspended nor in maintenance."""
    return and_(OrganisationRow.suspended_at.is_(None), _is_over(OrganisationRow.maintenance_until, now))


def is_of_open(now: datetime) -> ColumnElement[bool]:
    """Of runs: their organisation is open."""
    return exists().where(OrganisationRow.id == Run.org_id, is_open(now)).correlate(Run)


def has_open_place(now: datetime) -> ColumnElement[bool]:
    """Of runs joined with their jobs: the server is switched on, and its host is not in maintenance."""
    of_job = ServerRow.id == JobRow.server_instance_id
    is_off = exists().where(of_job, ~ServerRow.is_enabled).correlate(JobRow)
    is_on_host = of_job, HostRow.id == ServerRow.host_id
    is_maintained = exists().where(*is_on_host, ~_is_over(HostRow.maintenance_until, now)).correlate(JobRow)
    return and_(~is_off, ~is_maintained)


def _is_over(until: InstrumentedAttribute[datetime | None], now: datetime) -> ColumnElement[bool]:
    return or_(until.is_(None), until <= now)


def _has_one_before_it() -> ColumnElement[bool]:
    earlier = aliased(JobRunRow)
    is_before = earlier.line == Run.line, earlier.id < Run.id, earlier.org_id == Run.org_id
    # Written out, or SQLite would not see that the index of lines holds them.
    active = [literal_column(f"'{state.value}'", Text()) for state in sorted(ACTIVE_RUN_STATES)]
    return and_(Run.line.is_not(None), exists().where(*is_before, earlier.status.in_(active)))
