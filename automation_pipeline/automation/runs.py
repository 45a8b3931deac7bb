"""Runs: request, open, heartbeat, progress, retry, recover."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from automation_pipeline.automation import events
from automation_pipeline.automation.events import run_note
from automation_pipeline.automation.models.runs import (
    LOST_AFTER_SECONDS,
    MAX_FRUITLESS_ATTEMPTS,
    Phase,
    Run,
    RunAttempt,
    RunStatus,
    Trigger,
)
from automation_pipeline.automation.models.schedules import FicheSelection, SelectionMode
from automation_pipeline.automation.queries.ledger import (
    audits_of_run,
    fetched,
    fiches_to_retry,
    ledger_progress,
    tally,
    work_due,
)
from automation_pipeline.automation.queries.runs import (
    WatchedRun,
    add_run,
    as_run,
    get_run,
    last_run_of_root,
    lock_run,
    move_run,
    note_phase,
    record_heartbeat,
    requested_selection,
    run_plan,
    run_request,
    selection_of,
    write_log,
)
from automation_pipeline.automation.queries.schedules import (
    get_schedule,
    lock_for_new_run,
    mark_running,
    refuse_paused,
    unended_runs,
)
from automation_pipeline.automation.run_endings import close_lost_runs, finalise_run, replace_runs
from automation_pipeline.automation.tables import RunRow
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.history import write_notes
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.run_requests import (
    file_requests,
    mark_taken,
    request_again,
)

MAX_KEYS = 5


def manual_run_key(run_id: int) -> str:
    """The key of the request for a manual run."""
    return f"automation-run-{run_id}"


def request_run(  # noqa: PLR0913  the options of a run
    schedule_id: int,
    *,
    database: Database,
    clock: Clock,
    override: FicheSelection | None = None,
    trigger: Trigger = Trigger.MANUAL,
    due_at: datetime | None = None,
    retry_of: int | None = None,
    lost_after_seconds: float = LOST_AFTER_SECONDS,
) -> Run:
    """`retry_of`: the run whose failed fiches the new run processes. ConflictError: the schedule is
    paused, or already has a run."""
    close_lost_runs(schedule_id, lost_after_seconds, database=database, clock=clock)
    with database.reading() as session:
        schedule = get_schedule(session, schedule_id)
        replaced: list[int] = []
        if schedule.is_active and schedule.overlap_policy.replaces_others:
            replaced = unended_runs(session, schedule_id)
    replace_runs(replaced, database=database, clock=clock)
    now = clock.now()
    with database.transaction() as session:
        schedule = lock_for_new_run(session, schedule_id)
        row = add_run(
            session, schedule, trigger, now, override=override, due_at=due_at, retry_of=retry_of
        )
        file_run_request(session, row, now)
        return as_run(row)


def file_run_request(session: Session, row: RunRow, now: datetime, launch: int = 1) -> None:
    """File the request of a run that has none."""
    row.request_key = key = manual_run_key(row.id)
    request = run_request(key, row.schedule_id, row.id, row.trigger, launch=launch)
    file_requests(session, [request], now)


@dataclass(frozen=True, kw_only=True)
class RunLaunch:
    """The parameters of a launch. Without a run id, the run is found by its Dagster root run, or
    created. `is_next`: the watchdog requested this launch after a lost one. `is_repeat`: a user
    re-executes a Dagster run from its first step."""

    schedule_id: int
    dagster_run_id: str
    dagster_root_run_id: str
    worker: str
    is_next: bool = False
    is_repeat: bool = False
    run_id: int | None = None
    due_at: datetime | None = None
    override: FicheSelection | None = None
    lost_after_seconds: float = LOST_AFTER_SECONDS


def open_run(opening: RunLaunch, *, database: Database, clock: Clock) -> RunAttempt:
    """Start a new attempt and return its ticket. If the run of a requested next attempt has ended,
    return the ticket of its last attempt: no work is left."""
    if opening.run_id is None:
        close_lost_runs(
            opening.schedule_id, opening.lost_after_seconds, database=database, clock=clock
        )
    now = clock.now()
    with database.transaction() as session:
        row = _existing_run(session, opening, now)
        if row is not None and row.completed_at is not None:
            return RunAttempt(row.id, row.attempt)
        if row is None:
            schedule = lock_for_new_run(session, opening.schedule_id)
            row = add_run(
                session,
                schedule,
                Trigger.LAUNCHPAD,
                now,
                due_at=opening.due_at,
                override=opening.override,
            )
        elif row.attempt == 0:  # a pause does not stop a run that has already started
            refuse_paused(get_schedule(session, row.schedule_id))
        ticket = _start_attempt(session, row, opening, now)
        record_heartbeat(session, ticket, opening.worker)
        mark_running(
            session, row.schedule_id, now if row.trigger == Trigger.RETRY else row.due_at or now
        )
        if row.request_key:
            mark_taken(session, row.request_key, opening.dagster_run_id)
    return ticket


def _existing_run(session: Session, opening: RunLaunch, now: datetime) -> RunRow | None:
    if opening.run_id is None:
        row = last_run_of_root(session, opening.dagster_root_run_id)
        return None if row is None or row.completed_at is not None else row
    row = lock_run(session, opening.run_id)
    if row.schedule_id != opening.schedule_id:
        raise ConflictError(
            f"Run {row.id} belongs to schedule {row.schedule_id}, not {opening.schedule_id}."
        )
    if row.completed_at is not None and opening.is_repeat:
        return add_run(
            session,
            lock_for_new_run(session, row.schedule_id),
            Trigger.RETRY,
            now,
            due_at=row.due_at or row.started_at,
            override=requested_selection(row),
            retry_of=row.id,
        )
    if row.completed_at is not None and not opening.is_next:
        raise ConflictError(f"Run {row.id} has already ended ({row.status}): start a new one.")
    return row


def _start_attempt(session: Session, row: RunRow, opening: RunLaunch, now: datetime) -> RunAttempt:
    if row.status == RunStatus.PENDING:
        move_run(session, row, RunStatus.RUNNING, opening.worker, now)
    row.attempt += 1
    row.began_at = row.began_at or now
    if row.attempt > 1:
        row.progress_mark = ledger_progress(session, row.id)
    row.phase = Phase.SELECTION
    row.dagster_run_id = opening.dagster_run_id
    row.dagster_root_run_id = opening.dagster_root_run_id
    message = "Automation run started"
    if row.attempt > 1:
        message = f"Attempt {row.attempt} takes over the run"
    details = {"worker": opening.worker, "dagsterRunId": row.dagster_run_id}
    write_log(session, row.id, now, "info", message, details)
    session.flush()
    note_phase(session, row.id, row.attempt, Phase.SELECTION)
    run = as_run(row)
    enqueue(session, [events.started(run, now)])
    write_notes(
        session, run_note(run, f"START: attempt {row.attempt}", data={"worker": opening.worker})
    )
    return RunAttempt(row.id, row.attempt)


def send_heartbeat(ticket: RunAttempt, worker: str, *, database: Database) -> None:
    with database.transaction() as session:
        record_heartbeat(session, ticket, worker)


def record_progress(
    session: Session,
    ticket: RunAttempt,
    now: datetime,
    *,
    in_log: bool = True,
    step: Phase | None = None,
) -> None:
    """`step`: the phase of the log line; the default is the phase of the run."""
    run = get_run(session, ticket.run_id)
    step = step or run.phase
    status = tally(session, ticket.run_id, run.selected_fiches)
    audits = audits_of_run(session, ticket.run_id)
    made = events.ProgressUpdate(run.phase or Phase.SELECTION, status, audits.ended)
    enqueue(session, [events.progress(run, made, now)])
    if not in_log:
        return
    if step is Phase.FETCHING:
        ready = fetched(session, ticket.run_id)
        message = f"Fiche details progress: {ready}/{status.selected}"
    elif step is Phase.AUDITING:
        message = f"Audit progress: {audit_progress(session, ticket)}"
    else:
        return
    write_log(session, ticket.run_id, now, "info", message, vars(status))


def log_fan_out(
    session: Session,
    run_id: int,
    now: datetime,
    job: str,
    keys: Sequence[str],
    *,
    waits_for: str,
    **details: object,
) -> None:
    """`keys`: one per started job."""
    count = len(keys)
    details = {"count": count, **details, "keys": keys[:MAX_KEYS]}
    write_log(session, run_id, now, "info", f"Dispatched {job} fan-out events", details)
    run = get_run(session, run_id)
    notes = (f"FAN-OUT: {job} x{count}", f"WAITING: {waits_for}")
    write_notes(session, *(run_note(run, message) for message in notes))


def audit_progress(session: Session, ticket: RunAttempt) -> str:
    """Ended audits out of the expected ones: one per configuration and auditable fiche."""
    audits = audits_of_run(session, ticket.run_id)
    due = work_due(session, ticket.run_id).fiches_to_audit * len(
        run_plan(session, ticket.run_id).configs
    )
    return f"{audits.ended}/{due} (completed={audits.completed}, failed={audits.failed})"


def retry_run(run_id: int, *, database: Database, clock: Clock) -> Run:
    """File a new run over the failed fiches of an earlier one. ConflictError: the earlier run has
    not ended, or has no failed fiche."""
    with database.reading() as session:
        run = get_run(session, run_id)
        if run.completed_at is None:
            raise ConflictError(
                f"Run {run_id} is still {run.status}: wait for its end, or cancel it first"
            )
        row, fiche_ids = session.get_one(RunRow, run_id), fiches_to_retry(session, run_id)
        if fiche_ids:
            override = _selection_of_failed(fiche_ids, selection_of(session, row))
        elif run.status in (RunStatus.FAILED, RunStatus.CANCELLED):
            override = requested_selection(row)
        else:
            raise ConflictError(f"Run {run_id} has nothing to retry: no fiche failed")
    return request_run(
        run.schedule_id,
        database=database,
        clock=clock,
        override=override,
        trigger=Trigger.RETRY,
        due_at=run.due_at
        or (None if fiche_ids else run.started_at),  # relative days count back from this instant
        retry_of=run_id,
    )


def _selection_of_failed(fiche_ids: list[str], wanted: FicheSelection) -> FicheSelection:
    """Without `only_unaudited`, because a fiche with one failed audit out of two counts as
    audited."""
    return FicheSelection(
        mode=SelectionMode.MANUAL,
        fiche_ids=tuple(fiche_ids),
        groupes=wanted.groupes,
        only_with_recordings=wanted.only_with_recordings,
        use_rlm=wanted.use_rlm,
        max_recordings_per_fiche=wanted.max_recordings_per_fiche,
    )


@dataclass(frozen=True)
class LostLaunch:
    """A launch whose process is gone and whose run has not ended. `began`: the process had started
    to work."""

    run: WatchedRun
    reason: str
    began: bool = True


def request_next_attempt(lost: LostLaunch, *, database: Database, clock: Clock) -> str | None:
    """Request another attempt or close the run, and describe the action in a sentence. None:
    another process acted first."""
    now = clock.now()
    with database.transaction() as session:
        row = lock_run(session, lost.run.run_id)
        if row.completed_at is not None or row.attempt != lost.run.attempt:
            return None
        if not _request_launch(session, row, lost.run.launch, now):
            return None
        if lost.began:
            progress = ledger_progress(session, row.id)
            has_progress = progress > row.progress_mark
            row.fruitless_attempts = 0 if has_progress else row.fruitless_attempts + 1
            row.progress_mark = progress
        if row.fruitless_attempts < MAX_FRUITLESS_ATTEMPTS:
            has_started = row.status == RunStatus.RUNNING
            name = f"Attempt {row.attempt}" if has_started else "The run, before its first attempt,"
            message = f"{name} was lost: another attempt is requested"
            details = {"dagsterRunId": row.dagster_run_id, "reason": lost.reason}
            write_log(session, row.id, now, "warning", message, details)
            return f"Requested another attempt at run {row.id}"
    message = f"{MAX_FRUITLESS_ATTEMPTS} attempts in a row were lost without progress. The last one: {lost.reason}"
    finalise_run(
        lost.run.run_id, database=database, clock=clock, attempt=lost.run.attempt, breakdown=message
    )
    return f"Closed run {lost.run.run_id}"


def _request_launch(session: Session, row: RunRow, launch: int | None, now: datetime) -> bool:
    """A run without a request, for example one started by `dagster job execute`, gets a request for
    its second launch."""
    if row.request_key is not None:
        return launch is not None and request_again(session, row.request_key, launch)
    file_run_request(session, row, now, launch=2)
    return True
