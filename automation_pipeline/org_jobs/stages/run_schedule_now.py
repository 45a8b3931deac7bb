"""Run a schedule's job by hand, beside what the cron says."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError, InvalidInputError, sentence_of
from automation_pipeline.org_jobs.domain.by_hand import check_client_key, refuse_closed, window_timing
from automation_pipeline.org_jobs.domain.job_types import checked_payload, job_type
from automation_pipeline.org_jobs.domain.org_schedule import Dispatched
from automation_pipeline.org_jobs.domain.tenancy import Within
from automation_pipeline.org_jobs.store.hand_runs import (
    dispatched_for,
    make_room,
    refuse_disabled,
    refuse_over,
    write_run,
)
from automation_pipeline.org_jobs.store.new_jobs import NewJob
from automation_pipeline.org_jobs.store.schedule_jobs import host_of, job_of
from automation_pipeline.org_jobs.store.schedules import as_schedule, locked_with_place
from automation_pipeline.org_jobs.tables import ScheduleRow
from automation_pipeline.storage.database import Database, Session


def run_schedule_now(  # noqa: PLR0913  the collaborators by name, and who wants what
    schedule_id: str,
    *,
    within: Within,
    database: Database,
    clock: Clock,
    actor: str,
    client_key: str | None = None,
    payload: Mapping[str, object] | None = None,
    ignore_window: bool = False,
    call_origins: Collection[str] = (),
) -> Dispatched:
    """Of a paused one too. The same key is answered with the same job; a payload takes the place of the schedule's.

    ConflictError: it is over or cannot be read, the window is closed, another job is in the way, or the organisation or
    the server is out of use.
    """
    check_client_key(client_key)
    with database.transaction() as session:
        row, organisation = locked_with_place(session, schedule_id, within)
        known = dispatched_for(session, row, client_key)
        if known is not None:
            return known
        now = clock.now()
        refuse_over(row)
        refuse_disabled(session, row, organisation)
        checked = _checked(row, payload, call_origins)
        job = replace(_job(session, row, now, ignore_window=ignore_window), payload=checked)
        make_room(session, row, as_schedule(row), now)
        made = replace(job, created_by=actor)
        return write_run(session, row, made, client_key=client_key, actor=actor, now=now)


def _job(session: Session, row: ScheduleRow, now: datetime, *, ignore_window: bool) -> NewJob:
    schedule = as_schedule(row)
    timing = window_timing(schedule, ignore_window=ignore_window)
    refuse_closed(schedule, timing, now)
    return job_of(row, timing, now, host_of(session, row))


def _checked(
    row: ScheduleRow, payload: Mapping[str, object] | None, call_origins: Collection[str]
) -> Mapping[str, object]:
    """What its type needs may have changed since it was stored."""
    try:
        wanted = row.payload if payload is None else payload
        return checked_payload(job_type(row.job_type), wanted, call_origins=call_origins)
    except InvalidInputError as error:
        if payload is not None:
            raise
        raise ConflictError(f"Schedule {row.id} cannot be run as it is: {sentence_of(error)}") from None
