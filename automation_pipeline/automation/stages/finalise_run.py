"""End a run as its rows say. A good day, a crash, a cancellation and a bug all end here."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from automation_pipeline.automation.domain import events
from automation_pipeline.automation.domain.filters import EmptyReason
from automation_pipeline.automation.domain.notes import run_note
from automation_pipeline.automation.domain.run import (
    RUN_MACHINE,
    OutcomeStatus,
    Phase,
    Reason,
    Run,
    RunStatus,
    Tally,
    run_status,
    unread,
)
from automation_pipeline.automation.stages.notify_run import notify_run
from automation_pipeline.automation.store.details import audits_of_run
from automation_pipeline.automation.store.ledger import end_pending, tally, transcribed_fiches
from automation_pipeline.automation.store.phases import measure_phases, note_phase
from automation_pipeline.automation.store.runs import StaleAttemptError, as_run, lock_run, write_log
from automation_pipeline.automation.store.schedules import count_ended_run, schedule_of_run
from automation_pipeline.automation.tables import RunRow
from automation_pipeline.core.clock import Clock
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.run_requests import mark_refused
from automation_pipeline.storage.transitions import Transition, record_transitions
from automation_pipeline.storage.workflow_logs import write_notes

INTERRUPTED = "The run broke off before this fiche was done"


@dataclass(frozen=True)
class Closing:
    """How a run ends that did not finish by itself: its status, the error and reason of its pending fiches, and details
    for its record. A cancelled run's pending fiches are ignored, a failed run's have failed. Without `counted` the
    schedule's counters stay as they are."""

    error: str = INTERRUPTED
    reason: Reason = Reason.INTERRUPTED
    details: Mapping[str, object] | None = None
    log: str | None = None
    status: RunStatus = RunStatus.FAILED
    counted: bool = True


BROKE_OFF = Closing()


class LedgerError(Exception):
    """The rows of a run do not add up: a bug, never an outcome."""


def finalise_run(
    run_id: int,
    *,
    database: Database,
    clock: Clock,
    attempt: int | None = None,
    breakdown: str | None = None,
    closing: Closing = BROKE_OFF,
) -> Run:
    """The ended run; one that has ended before is returned as it is.

    With an attempt: only if it is still the one at work. With a breakdown: pending fiches and the run end as `closing`
    says.
    """
    now = clock.now()
    with database.transaction() as session:
        row = lock_run(session, run_id)
        if row.completed_at is not None:
            return as_run(row)
        if attempt is not None and row.attempt != attempt:
            raise StaleAttemptError(f"Attempt {attempt} of run {run_id} is no longer the one at work.")
        if breakdown is not None:
            end_pending(session, run_id, _abandoned(closing), closing.error, closing.reason, now)
        standing = tally(session, run_id, row.selected_fiches)
        if breakdown is None and not standing.is_whole:
            raise LedgerError(f"Run {run_id} cannot end: {standing}")
        breakdown = breakdown or unread(as_run(row))
        _end(session, row, standing, breakdown, closing, now)
        run = as_run(row)
        _tell(session, run, breakdown, closing, now)
        measure_phases(session, run_id)
        return run


def _end(
    session: Session, row: RunRow, standing: Tally, breakdown: str | None, closing: Closing, now: datetime
) -> None:
    status = run_status(standing) if breakdown is None else closing.status
    before = RunStatus(row.status)
    row.status = RUN_MACHINE.move(before, status)
    row.phase = Phase.FINALIZING
    row.completed_at = now
    length = None if row.began_at is None else (now - row.began_at) // timedelta(milliseconds=1)
    row.duration_ms = None if length is None else max(length, 0)  # clocks of two hosts differ
    row.total_fiches = standing.total
    row.successful_fiches = standing.successful
    row.failed_fiches = standing.failed
    row.ignored_fiches = standing.ignored
    row.transcriptions_run = transcribed_fiches(session, row.id)
    row.audits_run = audits_of_run(session, row.id).ended
    row.error_message = breakdown
    if closing.details is not None:
        row.error_details = {**(row.error_details or {}), **closing.details}
    empty = _why_empty(row)
    row.result_summary = {"message": empty.message, "ficheIds": []} if empty else {}
    session.flush()
    note_phase(session, row.id, row.attempt, Phase.FINALIZING)
    transition = Transition(RUN_MACHINE.name, str(row.id), before, status, "finalise_run", now, breakdown)
    record_transitions(session, [transition])
    count_ended_run(session, row.schedule_id, status, counted=closing.counted)
    if row.request_key and breakdown is not None:
        mark_refused(session, row.request_key, breakdown)


def _tell(session: Session, run: Run, breakdown: str | None, closing: Closing, now: datetime) -> None:
    """Logs, events and messages about the end, in the transaction that ends it: each once."""
    counts = f"{run.successful_fiches} successful, {run.failed_fiches} failed, {run.ignored_fiches} ignored"
    write_notes(session, run_note(run, f"END: {run.status}: {counts}", level="error" if breakdown else "info"))
    if breakdown is not None:
        level, words = (
            ("warning", breakdown)
            if run.status is RunStatus.CANCELLED
            else ("error", f"Automation failed: {breakdown}")
        )
        write_log(session, run.id, now, level, closing.log or words)
        enqueue(session, events.broken_off(run, breakdown, now))
        notify_run(session, run, schedule_of_run(session, run.schedule_id), now=now, breakdown=breakdown)
        return
    details = {"status": run.status, "duration_ms": run.duration_ms}
    write_log(session, run.id, now, "info", "Automation run completed", details)
    enqueue(session, events.completed(run, now, _why_empty(run)))
    notify_run(session, run, schedule_of_run(session, run.schedule_id), now=now)


def _abandoned(closing: Closing) -> OutcomeStatus:
    return OutcomeStatus.IGNORED if closing.status is RunStatus.CANCELLED else OutcomeStatus.FAILED


def _why_empty(run: Run | RunRow) -> EmptyReason | None:
    reason = (run.selection_summary or {}).get("empty_reason")
    return EmptyReason(str(reason)) if reason else None
