"""Runs: request, open, heartbeat, progress, retry, recover, end, and notify about the end."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import select

from automation_pipeline.automation import events
from automation_pipeline.automation.events import (
    MAX_FAILURES,
    Notification,
    notifications_of,
    run_note,
)
from automation_pipeline.automation.models.runs import (
    LOST_AFTER_SECONDS,
    MAX_FRUITLESS_ATTEMPTS,
    FicheFailure,
    LedgerTally,
    OutcomeStatus,
    Phase,
    Reason,
    Run,
    RunAttempt,
    RunStatus,
    Trigger,
    run_status,
    unread_days_error,
)
from automation_pipeline.automation.models.schedules import (
    EmptyReason,
    FicheSelection,
    Schedule,
    SelectionMode,
)
from automation_pipeline.automation.queries.ledger import (
    audits_of_run,
    end_pending,
    failed_fiches,
    fetched,
    fiches_to_retry,
    ledger_progress,
    tally,
    transcribed_fiches,
    work_due,
)
from automation_pipeline.automation.queries.runs import (
    StaleAttemptError,
    WatchedRun,
    add_run,
    as_run,
    get_run,
    last_run_of_root,
    lock_run,
    measure_phases,
    move_run,
    note_phase,
    record_heartbeat,
    requested_selection,
    run_plan,
    run_request,
    selection_of,
    watched_runs,
    write_log,
)
from automation_pipeline.automation.queries.schedules import (
    count_ended_run,
    get_schedule,
    lock_for_new_run,
    mark_running,
    refuse_paused,
    schedule_of_run,
    unended_runs,
)
from automation_pipeline.automation.tables import NotificationRow, RunRow
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError, InvalidInputError
from automation_pipeline.core.webhooks import DeliveryStatus
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.history import write_notes
from automation_pipeline.storage.monitoring import DAEMON, seconds_since_heartbeat
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.run_requests import (
    file_requests,
    mark_refused,
    mark_taken,
    request_again,
)
from automation_pipeline.storage.statements import upsert


def notify_run(
    session: Session, run: Run, schedule: Schedule, *, now: datetime, breakdown: str | None = None
) -> list[Notification]:
    """File the notifications of an ended run and return them. A repeated call files nothing
    more."""
    failures: list[FicheFailure] = []
    if breakdown is None and run.failed_fiches:
        failures = failed_fiches(session, run.id, MAX_FAILURES)
    messages = notifications_of(run, schedule, failures, breakdown)
    if not messages:
        return []
    rows = [
        {
            "run_id": run.id,
            "channel": each.channel,
            "target": each.target,
            "payload": each.payload,
            "status": DeliveryStatus.PENDING,
            "attempts": 0,
            "created_at": now,
        }
        for each in messages
    ]
    upsert(session, NotificationRow, rows, key=("run_id", "channel", "target"))
    stored = select(NotificationRow).where(NotificationRow.run_id == run.id)
    ids = {(row.channel, row.target): row.id for row in session.scalars(stored)}
    enqueue(
        session,
        [events.notification(each, ids[each.channel, each.target], now) for each in messages],
    )
    return messages


INTERRUPTED = "The run broke off before this fiche was done"


@dataclass(frozen=True)
class RunClosing:
    """How a run ends that did not finish: its status, the error and reason of its pending fiches,
    and details for its record. The pending fiches of a cancelled run are ignored, those of a failed
    run fail. Without `counted`, the counters of the schedule do not change."""

    error: str = INTERRUPTED
    reason: Reason = Reason.INTERRUPTED
    details: Mapping[str, object] | None = None
    log: str | None = None
    status: RunStatus = RunStatus.FAILED
    counted: bool = True


INTERRUPTED_CLOSING = RunClosing()


class LedgerError(Exception):
    """The rows of a run do not add up. This is a bug."""


def finalise_run(
    run_id: int,
    *,
    database: Database,
    clock: Clock,
    attempt: int | None = None,
    breakdown: str | None = None,
    closing: RunClosing = INTERRUPTED_CLOSING,
) -> Run:
    """End the run and return it; a run that has already ended is returned unchanged.

    With an attempt: only if it is the current one. With a breakdown: pending fiches and the run end
    as `closing` specifies.
    """
    now = clock.now()
    with database.transaction() as session:
        row = lock_run(session, run_id)
        if row.completed_at is not None:
            return as_run(row)
        if attempt is not None and row.attempt != attempt:
            raise StaleAttemptError(
                f"Attempt {attempt} of run {run_id} is no longer the current one."
            )
        if breakdown is not None:
            is_cancelled = closing.status is RunStatus.CANCELLED
            outcome = OutcomeStatus.IGNORED if is_cancelled else OutcomeStatus.FAILED
            end_pending(session, run_id, outcome, closing.error, closing.reason, now)
        counts = tally(session, run_id, row.selected_fiches)
        if breakdown is None and not counts.is_whole:
            raise LedgerError(f"Run {run_id} cannot end: {counts}")
        breakdown = breakdown or unread_days_error(as_run(row))
        _end_run(session, row, counts, breakdown, closing, now)
        run = as_run(row)
        _notify_end(session, run, breakdown, closing, now)
        measure_phases(session, run_id)
        return run


def _end_run(
    session: Session,
    row: RunRow,
    current: LedgerTally,
    breakdown: str | None,
    closing: RunClosing,
    now: datetime,
) -> None:
    status = run_status(current) if breakdown is None else closing.status
    move_run(session, row, status, "finalise_run", now, breakdown)
    row.phase = Phase.FINALIZING
    row.completed_at = now
    if row.began_at is not None:
        length = (now - row.began_at) // timedelta(milliseconds=1)
        row.duration_ms = max(length, 0)  # clocks of two hosts can differ
    row.total_fiches = current.total
    row.successful_fiches = current.successful
    row.failed_fiches = current.failed
    row.ignored_fiches = current.ignored
    row.transcriptions_run = transcribed_fiches(session, row.id)
    row.audits_run = audits_of_run(session, row.id).ended
    row.error_message = breakdown
    if closing.details is not None:
        row.error_details = {**(row.error_details or {}), **closing.details}
    empty = _why_empty(row)
    row.result_summary = {"message": empty.message, "ficheIds": []} if empty else {}
    session.flush()
    note_phase(session, row.id, row.attempt, Phase.FINALIZING)
    count_ended_run(session, row.schedule_id, status, counted=closing.counted)
    if row.request_key and breakdown is not None:
        mark_refused(session, row.request_key, breakdown)


def _notify_end(
    session: Session, run: Run, breakdown: str | None, closing: RunClosing, now: datetime
) -> None:
    """Write logs, events and notifications about the end in the transaction that ends the run, so
    that each is written once."""
    counts = f"{run.successful_fiches} successful, {run.failed_fiches} failed, {run.ignored_fiches} ignored"
    level = "error" if breakdown else "info"
    write_notes(session, run_note(run, f"END: {run.status}: {counts}", level=level))
    if breakdown is None:
        details = {"status": run.status, "duration_ms": run.duration_ms}
        write_log(session, run.id, now, "info", "Automation run completed", details)
        enqueue(session, events.completed(run, now, _why_empty(run)))
    else:
        level, message = "error", f"Automation failed: {breakdown}"
        if run.status is RunStatus.CANCELLED:
            level, message = "warning", breakdown
        write_log(session, run.id, now, level, closing.log or message)
        enqueue(session, events.aborted(run, breakdown, now))
    schedule = schedule_of_run(session, run.schedule_id)
    notify_run(session, run, schedule, now=now, breakdown=breakdown)


def _why_empty(run: Run | RunRow) -> EmptyReason | None:
    reason = (run.selection_summary or {}).get("empty_reason")
    return EmptyReason(str(reason)) if reason else None


LONGEST_REASON = 500
CANCELLED_WORDS = "Cancelled by an operator"


def cancel_run(run_id: int, *, database: Database, clock: Clock, reason: str | None = None) -> Run:
    """Cancel a run and ignore its unfinished fiches. Raises ConflictError if the run has already ended."""
    given = " ".join((reason or "").split())
    for is_wrong, fault in (
        (len(given) > LONGEST_REASON, f"is longer than {LONGEST_REASON} characters"),
        ("\0" in given, "must not hold the character NUL"),
    ):
        if is_wrong:
            raise InvalidInputError("The run is not cancelled", (("reason", fault),))
    message = f"{CANCELLED_WORDS}: {given}" if given else CANCELLED_WORDS
    with database.reading() as session:
        run = get_run(session, run_id)
    if run.completed_at is None:
        closing = RunClosing(CANCELLED_WORDS, Reason.CANCELLED, status=RunStatus.CANCELLED)
        run = finalise_run(
            run_id, database=database, clock=clock, breakdown=message, closing=closing
        )
        if run.error_message == message:
            return run
    raise ConflictError(f"Run {run.id} has already ended ({run.status})")


REPLACED_WORDS = "Cancelled: the schedule is due again, and the newer run takes its place"


def replace_runs(run_ids: Iterable[int], *, database: Database, clock: Clock) -> None:
    """Cancel runs to make room for a newer run of their schedule."""
    closing = RunClosing(REPLACED_WORDS, Reason.CANCELLED, status=RunStatus.CANCELLED)
    for run_id in run_ids:
        finalise_run(
            run_id, database=database, clock=clock, breakdown=REPLACED_WORDS, closing=closing
        )


# A daemon without a tick for this long is not running: its sensors tick every five seconds.
DAEMON_GONE_SECONDS = 60.0


def close_lost_runs(
    schedule_id: int, lost_after_seconds: float, *, database: Database, clock: Clock
) -> list[int]:
    """Close the runs of the schedule whose process is lost while no daemon runs that would request
    another attempt, and return their ids. Runs that wait for a daemon stay open."""
    with database.reading() as session:
        since_tick = seconds_since_heartbeat(session, DAEMON)
        if since_tick is not None and since_tick <= DAEMON_GONE_SECONDS:
            return []
        unended = [run for run in watched_runs(session) if run.schedule_id == schedule_id]
    lost = [run for run in unended if run.attempt > 0 and run.silent_seconds > lost_after_seconds]
    for run in lost:
        since = f"{run.last_sign_at:%Y-%m-%d %H:%M:%S} UTC"
        message = f"The process that worked on it was lost: no heartbeat since {since}"
        finalise_run(
            run.run_id, database=database, clock=clock, attempt=run.attempt, breakdown=message
        )
    return [run.run_id for run in lost]


MAX_KEYS = 5


def manual_run_key(run_id: int) -> str:
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
    """`retry_of`: the run whose failed fiches the new run processes. Raises ConflictError if the schedule is
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
    progress = events.ProgressUpdate(run.phase or Phase.SELECTION, status, audits.ended)
    enqueue(session, [events.progress(run, progress, now)])
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
    """File a new run over the failed fiches of an earlier one. Raises ConflictError if the earlier run has
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
    """A launch whose process is gone and whose run has not ended. `has_started`: the process had
    started to work."""

    run: WatchedRun
    reason: str
    has_started: bool = True


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
        if lost.has_started:
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
