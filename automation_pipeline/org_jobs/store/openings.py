"""Runs whose time has come outside of their start window: they wait for its next opening."""

import json
from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import ColumnElement, Text, and_, bindparam, cast, select, update
from sqlalchemy.orm import Session

from automation_pipeline.org_jobs.domain.job_type import Performer
from automation_pipeline.org_jobs.store.readiness import is_due
from automation_pipeline.org_jobs.store.start_windows import window_of
from automation_pipeline.org_jobs.tables import JobRow, JobRunRow, ServerRow
from automation_pipeline.storage.bulk import among

Run = JobRunRow
_WINDOW = cast(JobRow.start_window, Text)


def opens_at(start_window: Mapping[str, object] | None, at: datetime) -> datetime:
    """The first time from then on at which an attempt may begin."""
    window = window_of(start_window)
    return at if window is None else window.first_at(at)


def opens_for(session: Session, run_id: int, at: datetime) -> datetime:
    of_run = select(JobRow.start_window).join(Run, Run.job_id == JobRow.id).where(Run.id == run_id)
    return opens_at(session.scalar(of_run), at)


def of_service() -> ColumnElement[bool]:
    return Run.performer == Performer.SERVICE


def of_host(host_id: int, org_id: str) -> ColumnElement[bool]:
    """By where its server is now."""
    servers = select(ServerRow.id).where(ServerRow.host_id == host_id, ServerRow.org_id == org_id)
    of_agents = Run.org_id == org_id, Run.performer == Performer.AGENT
    return and_(*of_agents, JobRow.server_instance_id.in_(servers))


def put_off_closed(session: Session, chosen: ColumnElement[bool], now: datetime) -> None:
    """Whoever holds one at this moment keeps it, and nobody is waited for: who begins one looks at its window, too."""
    due = (
        select(Run.id, _WINDOW)
        .join(JobRow, JobRow.id == Run.job_id)
        .where(is_due(now), JobRow.start_window.is_not(None), chosen)
    )
    windows = session.scalars(due.with_only_columns(_WINDOW).distinct())
    opens = {window: opens_at(json.loads(window), now) for window in windows}
    closed = {window: at for window, at in opens.items() if at > now}
    if not closed:
        return
    held = due.where(among(session, _WINDOW, closed)).order_by(Run.id).with_for_update(of=Run, skip_locked=True)
    put_off = [{"closed": run_id, "until": closed[window]} for run_id, window in session.execute(held).tuples()]
    if put_off:
        change = update(Run).where(Run.id == bindparam("closed"))
        session.connection().execute(change.values(next_attempt_at=bindparam("until"), requested_at=None), put_off)
