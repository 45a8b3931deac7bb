"""Use cases of schedules: create, change, pause and resume, skip or run once, preview."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from automation_pipeline.core.clock import Clock, iso
from automation_pipeline.core.errors import (
    ConflictError,
    InvalidInputError,
    sentence_of,
)
from automation_pipeline.core.scheduling.timing import Planned, read_timing
from automation_pipeline.org_jobs.models.job_types import NO_OWN_TYPES, checked_payload, job_type
from automation_pipeline.org_jobs.models.jobs import JobType, ScheduleState
from automation_pipeline.org_jobs.models.organisations import OrgScope, differences
from automation_pipeline.org_jobs.models.schedules import (
    Dispatched,
    OrgSchedule,
    input_document,
    read_pause,
    read_skip,
    timing_fields,
)
from automation_pipeline.org_jobs.queries.dispatch import (
    find_dispatched,
    host_of,
    job_of,
    refuse_disabled,
    refuse_ended,
    resolve_overlap,
    write_manual_run,
)
from automation_pipeline.org_jobs.queries.jobs import NewJob
from automation_pipeline.org_jobs.queries.organisations import (
    host_of_server,
    locked_organisation,
    own_type,
)
from automation_pipeline.org_jobs.queries.schedules import (
    add_schedule,
    apply_state,
    as_schedule,
    cancel_waiting,
    change_state,
    clear_pause,
    columns_of,
    get_schedule,
    lock_ended_pauses,
    lock_schedule,
    lock_with_organisation,
    raise_version,
    record_change,
    resume_locked,
    timing_of,
)
from automation_pipeline.org_jobs.rules.schedules import (
    INVALID_SCHEDULE,
    NextState,
    SchedulePreview,
    changed_schedule,
    check_client_key,
    check_count,
    next_after,
    plan_of,
    preview,
    read_schedule,
    refuse_closed,
    refuse_never_due,
    refuse_pause,
    state_after,
    window_timing,
)
from automation_pipeline.org_jobs.tables import OrgScheduleRow
from automation_pipeline.storage.database import Database, Session


def create_schedule(  # noqa: PLR0913  the collaborators by name
    given: Mapping[str, object],
    *,
    org_id: str,
    within: OrgScope,
    database: Database,
    clock: Clock,
    actor: str,
    call_origins: Collection[str] = (),
) -> OrgSchedule:
    """Raises InvalidInputError, which names every faulty field. In a suspended organisation the schedule is
    paused like the others."""
    with database.transaction() as session:
        own_types = own_type(session, org_id, given.get("jobType"))
        wanted = read_schedule(given, call_origins=call_origins, own_types=own_types)
        organisation, now = locked_organisation(session, org_id, within), clock.now()
        refuse_never_due(wanted, now)
        host_of_server(session, wanted.server_instance_id, org_id, INVALID_SCHEDULE)
        is_suspended = organisation.suspended_at is not None
        row = add_schedule(
            session, wanted, org_id=org_id, is_suspended=is_suspended, actor=actor, now=now
        )
        record_change(session, row, "create", actor=actor, now=now, after=input_document(wanted))
        return as_schedule(row)


def update_schedule(  # noqa: PLR0913  the collaborators and the request, by name
    schedule_id: str,
    patch: Mapping[str, object],
    *,
    within: OrgScope,
    database: Database,
    clock: Clock,
    actor: str,
    call_origins: Collection[str] = (),
) -> OrgSchedule:
    """Apply a patch: fields that it does not name stay, null clears a field that may be null. New
    due times count from now on."""
    with database.transaction() as session:
        row, organisation = lock_with_organisation(session, schedule_id, within)
        stored, now = as_schedule(row), clock.now()
        own_types = own_type(session, row.org_id, patch.get("jobType", row.job_type))
        changed = changed_schedule(stored, patch, call_origins=call_origins, own_types=own_types)
        before, after = differences(input_document(stored), input_document(changed))
        if not after:
            return stored
        if changed.server_instance_id != stored.server_instance_id:
            host_of_server(session, changed.server_instance_id, row.org_id, INVALID_SCHEDULE)
        following = state_after(stored, changed, now)
        for name, value in columns_of(changed).items():
            setattr(row, name, value)
        is_suspended = organisation.suspended_at is not None
        apply_state(session, row, following, is_suspended=is_suspended, actor=actor, now=now)
        record_change(session, row, "update", actor=actor, now=now, before=before, after=after)
        return as_schedule(row)


DELETED = "Its schedule was deleted."


def delete_schedule(
    schedule_id: str, *, within: OrgScope, database: Database, clock: Clock, actor: str
) -> None:
    """Delete a schedule and cancel its jobs that have not started."""
    with database.transaction() as session:
        row, now = lock_schedule(session, schedule_id, within), clock.now()
        cancel_waiting(session, row.id, actor=actor, now=now, reason=DELETED)
        before = input_document(as_schedule(row))
        row.deleted_at, row.paused_until, row.is_suspended = now, None, False
        state = ScheduleState(row.state)
        following = NextState(ScheduleState.PAUSED if state is ScheduleState.ACTIVE else state)
        change_state(session, row, following, actor=actor, now=now, reason=DELETED)
        record_change(session, row, "delete", actor=actor, now=now, before=before)


def pause_schedule(  # noqa: PLR0913  the collaborators and the request, by name
    schedule_id: str,
    *,
    within: OrgScope,
    database: Database,
    clock: Clock,
    actor: str,
    reason: str | None = None,
    until: datetime | None = None,
) -> OrgSchedule:
    """A paused schedule keeps its reason and its end unless the caller gives others. A schedule
    that was paused with its organisation is no longer resumed with it."""
    now = clock.now()
    request = read_pause(reason, until, now)
    with database.transaction() as session:
        row = lock_schedule(session, schedule_id, within)
        refuse_pause(ScheduleState(row.state))
        is_paused = row.state == ScheduleState.PAUSED and not row.enabled
        if is_paused and request.reason is None and request.until is None:
            return as_schedule(row)
        change_state(
            session,
            row,
            NextState(ScheduleState.PAUSED),
            actor=actor,
            now=now,
            reason=request.reason,
        )
        row.enabled, row.is_suspended = False, False
        row.pause_reason, row.paused_until = request.reason, request.until
        after = {
            "state": row.state,
            "pausedUntil": None if request.until is None else iso(request.until),
        }
        record_change(
            session, row, "pause", actor=actor, now=now, after=after, reason=request.reason
        )
        return as_schedule(row)


def resume_schedule(
    schedule_id: str, *, within: OrgScope, database: Database, clock: Clock, actor: str
) -> OrgSchedule:
    """An active schedule stays unchanged. Raises ConflictError if its organisation is suspended, or the
    schedule is never due."""
    with database.transaction() as session:
        row, organisation = lock_with_organisation(session, schedule_id, within)
        if row.state == ScheduleState.ACTIVE:
            return as_schedule(row)
        if organisation.suspended_at is not None:
            raise ConflictError(f"Organisation '{row.org_id}' is suspended: resume it first.")
        now, before = clock.now(), {"state": row.state, "pauseReason": row.pause_reason}
        following = NextState(ScheduleState.ACTIVE, _planned(row, now))
        clear_pause(row)
        row.enabled = True
        change_state(session, row, following, actor=actor, now=now)
        record_change(
            session, row, "resume", actor=actor, now=now, before=before, after={"state": row.state}
        )
        return as_schedule(row)


def _planned(row: OrgScheduleRow, now: datetime) -> Planned:
    try:
        planned = next_after(timing_of(row), now, row.last_scheduled_for)
    except InvalidInputError as error:
        raise ConflictError(
            f"Schedule {row.id} must be corrected before it can be resumed: {error}"
        ) from None
    if planned is None:
        raise ConflictError(
            f"Schedule {row.id} is never due again: give it a later end, or another cron expression."
        )
    return planned


RESUME_BATCH = 250


def resume_paused_schedules(*, database: Database, clock: Clock) -> Sequence[str]:
    """Resume schedules whose pause has ended, and return their ids. Schedules of suspended
    organisations wait. The rest waits for the next tick."""
    with database.transaction() as session:
        now = clock.now()
        return resume_locked(session, lock_ended_pauses(session, now, RESUME_BATCH), now)


def skip_next_run(
    schedule_id: str,
    *,
    within: OrgScope,
    database: Database,
    clock: Clock,
    actor: str,
    reason: str | None = None,
) -> OrgSchedule:
    """A repeated request replaces the reason. Raises ConflictError if the schedule is not active."""
    request = read_skip(reason)
    with database.transaction() as session:
        row, now = lock_schedule(session, schedule_id, within), clock.now()
        if row.state != ScheduleState.ACTIVE:
            raise ConflictError(
                f"Schedule {schedule_id} is {row.state}: it has no next run to skip."
            )
        if row.skip_next_run and request.reason in {None, row.skip_next_run_reason}:
            return as_schedule(row)
        row.skip_next_run, row.skip_next_run_reason, row.skip_next_run_requested_at = (
            True,
            request.reason,
            now,
        )
        raise_version(row, now)
        record_change(
            session,
            row,
            "skip_next",
            actor=actor,
            now=now,
            after={"skipNextRun": True},
            reason=request.reason,
        )
        return as_schedule(row)


def keep_next_run(
    schedule_id: str, *, within: OrgScope, database: Database, clock: Clock, actor: str
) -> OrgSchedule:
    """Nothing changes if the next run is not skipped."""
    with database.transaction() as session:
        row, now = lock_schedule(session, schedule_id, within), clock.now()
        if not row.skip_next_run:
            return as_schedule(row)
        before = {"skipNextRun": True, "skipNextRunReason": row.skip_next_run_reason}
        row.skip_next_run, row.skip_next_run_reason, row.skip_next_run_requested_at = (
            False,
            None,
            None,
        )
        raise_version(row, now)
        record_change(
            session,
            row,
            "keep_next",
            actor=actor,
            now=now,
            before=before,
            after={"skipNextRun": False},
        )
        return as_schedule(row)


def run_schedule_now(  # noqa: PLR0913  the collaborators and the request, by name
    schedule_id: str,
    *,
    within: OrgScope,
    database: Database,
    clock: Clock,
    actor: str,
    client_key: str | None = None,
    payload: Mapping[str, object] | None = None,
    ignore_window: bool = False,
    call_origins: Collection[str] = (),
) -> Dispatched:
    """Request a job now, also for a paused schedule. The same key returns the same job. A payload
    replaces that of the schedule.

    Raises ConflictError if the schedule has ended or is not valid, its window is closed, its overlap policy
    does not allow another job, or its organisation or server is disabled.
    """
    check_client_key(client_key)
    with database.transaction() as session:
        row, organisation = lock_with_organisation(session, schedule_id, within)
        known = find_dispatched(session, row, client_key)
        if known is not None:
            return known
        now = clock.now()
        refuse_ended(row)
        refuse_disabled(session, row, organisation)
        own_types = own_type(session, row.org_id, row.job_type)
        checked = _checked(row, payload, call_origins, own_types)
        job = _job(session, row, now, own_types, ignore_window=ignore_window)
        job = replace(job, payload=checked)
        resolve_overlap(session, row, as_schedule(row), now)
        manual_job = replace(job, created_by=actor)
        return write_manual_run(
            session, row, manual_job, client_key=client_key, actor=actor, now=now
        )


def _job(
    session: Session,
    row: OrgScheduleRow,
    now: datetime,
    own_types: Mapping[str, JobType],
    *,
    ignore_window: bool,
) -> NewJob:
    schedule = as_schedule(row)
    timing = window_timing(schedule, ignore_window=ignore_window)
    refuse_closed(schedule, timing, now)
    return job_of(row, timing, now, host_of(session, row), own_types)


def _checked(
    row: OrgScheduleRow,
    payload: Mapping[str, object] | None,
    call_origins: Collection[str],
    own_types: Mapping[str, JobType],
) -> Mapping[str, object]:
    """Check the payload: the requirements of its type may have changed since it was stored."""
    try:
        wanted = row.payload if payload is None else payload
        return checked_payload(job_type(row.job_type, own_types), wanted, call_origins=call_origins)
    except InvalidInputError as error:
        if payload is not None:
            raise
        raise ConflictError(
            f"Schedule {row.id} cannot run with its current values: {sentence_of(error)}"
        ) from None


def preview_schedule(
    given: Mapping[str, object],
    *,
    org_id: str | None,
    database: Database,
    count: int,
    after: datetime,
    call_origins: Collection[str] = (),
) -> SchedulePreview:
    """Check a schedule as if it were stored, except for its server. Without an organisation only
    the built-in types are known."""
    check_count(count)
    own_types: Mapping[str, JobType] = NO_OWN_TYPES
    if org_id is not None:
        with database.reading() as session:
            own_types = own_type(session, org_id, given.get("jobType"))
    wanted = read_schedule(given, call_origins=call_origins, own_types=own_types)
    timing = read_timing(timing_fields(wanted, "", jitter_seconds=0))
    return preview(timing, after, count, max_jitter_seconds=wanted.jitter_s)


def coming_runs(
    schedule_id: str,
    *,
    within: OrgScope,
    database: Database,
    clock: Clock,
    count: int,
    after: datetime | None = None,
) -> SchedulePreview:
    """Return the coming due times; for a schedule that is paused until an instant, those from then
    on. Other inactive schedules have none, and a note says why."""
    check_count(count)
    with database.reading() as session:
        schedule = get_schedule(session, schedule_id, within)
    return plan_of(schedule, clock.now(), count, after)
