"""Ends of runs: finalise, cancel, close stale and lost runs, and file the notifications."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import select

from automation_pipeline.automation import events
from automation_pipeline.automation.events import PRODUCER, TENANT, job_id, run_note
from automation_pipeline.automation.models.runs import (
    RUN_MACHINE,
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
    tally,
    transcribed_fiches,
)
from automation_pipeline.automation.queries.runs import (
    StaleAttemptError,
    as_run,
    get_run,
    lock_run,
    measure_phases,
    note_phase,
    watched_runs,
    write_log,
)
from automation_pipeline.automation.queries.schedules import count_ended_run, schedule_of_run
from automation_pipeline.automation.rules.notifications import (
    MAX_FAILURES,
    NOTIFICATION_EVENT,
    FicheFailure,
    Notification,
    is_wanted,
    notifications_of,
)
from automation_pipeline.automation.tables import FicheResultRow, NotificationRow, RunRow
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError, InvalidInputError
from automation_pipeline.core.events import Event
from automation_pipeline.core.webhooks import DeliveryStatus
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.history import Transition, record_transitions, write_notes
from automation_pipeline.storage.monitoring import DAEMON, seconds_since_heartbeat
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.run_requests import mark_refused
from automation_pipeline.storage.statements import upsert

_KEY = ("run_id", "channel", "target")


def first_failures(session: Session, run_id: int, limit: int) -> list[FicheFailure]:
    """In the order of selection."""
    fiche = FicheResultRow
    query = (
        select(fiche.fiche_id, fiche.error)
        .where(fiche.run_id == run_id, fiche.status == OutcomeStatus.FAILED)
        .order_by(fiche.position)
        .limit(limit)
    )
    return [
        FicheFailure(fiche_id, error or "") for fiche_id, error in session.execute(query).tuples()
    ]


def add_notifications(
    session: Session, run_id: int, notifications: Sequence[Notification], now: datetime
) -> list[int]:
    """The ids of the rows, in the same order; existing rows do not change."""
    rows = [
        {
            "run_id": each.run_id,
            "channel": each.channel,
            "target": each.target,
            "payload": each.payload,
            "status": DeliveryStatus.PENDING,
            "attempts": 0,
            "created_at": now,
        }
        for each in notifications
    ]
    upsert(session, NotificationRow, rows, key=_KEY)
    row = NotificationRow
    query = select(row.channel, row.target, row.id).where(row.run_id == run_id)
    ids = {(channel, target): row_id for channel, target, row_id in session.execute(query).tuples()}
    return [ids[each.channel, each.target] for each in notifications]


def notify_run(
    session: Session,
    run: Run,
    schedule: Schedule,
    *,
    now: datetime,
    breakdown: str | None = None,
) -> list[Notification]:
    """File the notifications of an ended run and return them. A repeated call files nothing
    more."""
    if not is_wanted(schedule, run.status):
        return []
    failures = (
        first_failures(session, run.id, MAX_FAILURES)
        if breakdown is None and run.failed_fiches
        else []
    )
    messages = notifications_of(run, schedule, failures, breakdown)
    if messages:
        ids = add_notifications(session, run.id, messages, now)
        enqueue(
            session,
            [
                _notification_event(message, row, now)
                for message, row in zip(messages, ids, strict=True)
            ],
        )
    return messages


def _notification_event(message: Notification, notification_id: int, now: datetime) -> Event:
    return Event(
        tenant_id=TENANT,
        key=message.key,
        name=NOTIFICATION_EVENT,
        producer=PRODUCER,
        correlation_id=job_id(message.run_id),
        occurred_at=now,
        payload={"notification_id": notification_id},
    )


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
        status = tally(session, run_id, row.selected_fiches)
        if breakdown is None and not status.is_whole:
            raise LedgerError(f"Run {run_id} cannot end: {status}")
        breakdown = breakdown or unread_days_error(as_run(row))
        _end_run(session, row, status, breakdown, closing, now)
        run = as_run(row)
        _notify_end(session, run, breakdown, closing, now)
        measure_phases(session, run_id)
        return run


def _end_run(
    session: Session,
    row: RunRow,
    current_status: LedgerTally,
    breakdown: str | None,
    closing: RunClosing,
    now: datetime,
) -> None:
    status = run_status(current_status) if breakdown is None else closing.status
    before = RunStatus(row.status)
    row.status = RUN_MACHINE.move(before, status)
    row.phase = Phase.FINALIZING
    row.completed_at = now
    length = None if row.began_at is None else (now - row.began_at) // timedelta(milliseconds=1)
    row.duration_ms = None if length is None else max(length, 0)  # clocks of two hosts can differ
    row.total_fiches = current_status.total
    row.successful_fiches = current_status.successful
    row.failed_fiches = current_status.failed
    row.ignored_fiches = current_status.ignored
    row.transcriptions_run = transcribed_fiches(session, row.id)
    row.audits_run = audits_of_run(session, row.id).ended
    row.error_message = breakdown
    if closing.details is not None:
        row.error_details = {**(row.error_details or {}), **closing.details}
    empty = _why_empty(row)
    row.result_summary = {"message": empty.message, "ficheIds": []} if empty else {}
    session.flush()
    note_phase(session, row.id, row.attempt, Phase.FINALIZING)
    transition = Transition(
        RUN_MACHINE.name, str(row.id), before, status, "finalise_run", now, breakdown
    )
    record_transitions(session, [transition])
    count_ended_run(session, row.schedule_id, status, counted=closing.counted)
    if row.request_key and breakdown is not None:
        mark_refused(session, row.request_key, breakdown)


def _notify_end(
    session: Session, run: Run, breakdown: str | None, closing: RunClosing, now: datetime
) -> None:
    """Write logs, events and notifications about the end in the transaction that ends the run, so
    that each is written once."""
    counts = f"{run.successful_fiches} successful, {run.failed_fiches} failed, {run.ignored_fiches} ignored"
    write_notes(
        session,
        run_note(run, f"END: {run.status}: {counts}", level="error" if breakdown else "info"),
    )
    if breakdown is not None:
        level, log_message = (
            ("warning", breakdown)
            if run.status is RunStatus.CANCELLED
            else ("error", f"Automation failed: {breakdown}")
        )
        write_log(session, run.id, now, level, closing.log or log_message)
        enqueue(session, events.aborted(run, breakdown, now))
        notify_run(
            session, run, schedule_of_run(session, run.schedule_id), now=now, breakdown=breakdown
        )
        return
    details = {"status": run.status, "duration_ms": run.duration_ms}
    write_log(session, run.id, now, "info", "Automation run completed", details)
    enqueue(session, events.completed(run, now, _why_empty(run)))
    notify_run(session, run, schedule_of_run(session, run.schedule_id), now=now)


def _why_empty(run: Run | RunRow) -> EmptyReason | None:
    reason = (run.selection_summary or {}).get("empty_reason")
    return EmptyReason(str(reason)) if reason else None


LONGEST_REASON = 500
CANCELLED_WORDS = "Cancelled by an operator"
CANCELLED_CLOSING = RunClosing(CANCELLED_WORDS, Reason.CANCELLED, status=RunStatus.CANCELLED)


def cancel_run(run_id: int, *, database: Database, clock: Clock, reason: str | None = None) -> Run:
    """Cancel a run and ignore its unfinished fiches. ConflictError: the run has already ended."""
    message = _cancel_message(reason)
    with database.reading() as session:
        _refuse_ended(get_run(session, run_id))
    run = finalise_run(
        run_id, database=database, clock=clock, breakdown=message, closing=CANCELLED_CLOSING
    )
    if run.error_message != message:  # the run ended just before the cancellation
        _refuse_ended(run)
    return run


def _cancel_message(reason: str | None) -> str:
    given = " ".join((reason or "").split())
    if len(given) > LONGEST_REASON:
        raise InvalidInputError(
            "The run is not cancelled", (("reason", f"is longer than {LONGEST_REASON} characters"),)
        )
    if "\0" in given:
        raise InvalidInputError(
            "The run is not cancelled", (("reason", "must not hold the character NUL"),)
        )
    return f"{CANCELLED_WORDS}: {given}" if given else CANCELLED_WORDS


def _refuse_ended(run: Run) -> None:
    if run.completed_at is not None:
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
