"""Ends of runs: finalise, cancel, close stale and lost runs, and file the notifications."""

from collections.abc import Iterable, Mapping
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
    FicheFailure,
    LedgerTally,
    OutcomeStatus,
    Phase,
    Reason,
    Run,
    RunStatus,
    run_status,
    unread_days_error,
)
from automation_pipeline.automation.models.schedules import EmptyReason, Schedule
from automation_pipeline.automation.queries.ledger import (
    audits_of_run,
    end_pending,
    failed_fiches,
    tally,
    transcribed_fiches,
)
from automation_pipeline.automation.queries.runs import (
    StaleAttemptError,
    as_run,
    get_run,
    lock_run,
    measure_phases,
    move_run,
    note_phase,
    watched_runs,
    write_log,
)
from automation_pipeline.automation.queries.schedules import count_ended_run, schedule_of_run
from automation_pipeline.automation.tables import NotificationRow, RunRow
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError, InvalidInputError
from automation_pipeline.core.webhooks import DeliveryStatus
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.history import write_notes
from automation_pipeline.storage.monitoring import DAEMON, seconds_since_heartbeat
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.run_requests import mark_refused
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
    """Cancel a run and ignore its unfinished fiches. ConflictError: the run has already ended."""
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
