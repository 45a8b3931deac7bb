"""End a run as its rows say. A good day, a crash and a bug all end here."""

from datetime import datetime, timedelta

from automation_pipeline.automation.domain.run import RUN_MACHINE, Phase, Run, RunStatus, Tally, run_status
from automation_pipeline.automation.store.ledger import fail_pending, tally
from automation_pipeline.automation.store.runs import StaleAttemptError, as_run, lock_run, write_log
from automation_pipeline.automation.store.schedules import count_ended_run
from automation_pipeline.automation.tables import RunRow
from automation_pipeline.core.clock import Clock
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.run_requests import mark_refused
from automation_pipeline.storage.transitions import Transition, record_transitions

INTERRUPTED = "The run broke off before this fiche was done"


class LedgerError(Exception):
    """The rows of a run do not add up: a bug, never an outcome."""


def finalise_run(
    run_id: int, *, database: Database, clock: Clock, attempt: int | None = None, breakdown: str | None = None
) -> Run:
    """The ended run; one that has ended before is returned as it is.

    With an attempt: only if it is still the one at work. With a breakdown: what is pending has failed, and the run.
    """
    now = clock.now()
    with database.transaction() as session:
        row = lock_run(session, run_id)
        if row.completed_at is not None:
            return as_run(row)
        if attempt is not None and row.attempt != attempt:
            raise StaleAttemptError(f"Attempt {attempt} of run {run_id} is no longer the one at work.")
        if breakdown is not None:
            fail_pending(session, run_id, INTERRUPTED, now)
        standing = tally(session, run_id, row.selected_fiches)
        if breakdown is None and not standing.is_whole:
            raise LedgerError(f"Run {run_id} cannot end: {standing}")
        _end(session, row, standing, breakdown, now)
        return as_run(row)


def _end(session: Session, row: RunRow, standing: Tally, breakdown: str | None, now: datetime) -> None:
    status = run_status(standing) if breakdown is None else RunStatus.FAILED
    before = RunStatus(row.status)
    row.status = RUN_MACHINE.move(before, status)
    row.phase = Phase.FINALIZING
    row.completed_at = now
    row.duration_ms = (now - row.started_at) // timedelta(milliseconds=1)
    row.total_fiches = standing.total
    row.successful_fiches = standing.successful
    row.failed_fiches = standing.failed
    row.ignored_fiches = standing.ignored
    row.error_message = breakdown
    nothing_found = row.selected_at is not None and row.selected_fiches == 0
    row.result_summary = {"message": "No fiches found", "ficheIds": []} if nothing_found else {}
    session.flush()
    transition = Transition(RUN_MACHINE.name, str(row.id), before, status, "finalise_run", now, breakdown)
    record_transitions(session, [transition])
    count_ended_run(session, row.schedule_id, status)
    if row.request_key and breakdown is not None:
        mark_refused(session, row.request_key, breakdown)
    if breakdown is None:
        write_log(session, row.id, now, "info", "Automation run completed", {"status": status})
    else:
        write_log(session, row.id, now, "error", f"Automation failed: {breakdown}")
