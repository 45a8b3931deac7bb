"""The gate after the details: who needs nothing more ends, and the batches that go on are named."""

from automation_pipeline.automation.domain.notes import run_note
from automation_pipeline.automation.domain.run import Reason, RunTicket
from automation_pipeline.automation.stages.tell_progress import tell_progress
from automation_pipeline.automation.store.ledger import (
    failures,
    ignored_by_reason,
    pending_batches,
    succeed_fetched,
    tally,
)
from automation_pipeline.automation.store.runs import as_run, has_ended, held_run, tries_of, write_log
from automation_pipeline.core.clock import Clock
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.workflow_logs import write_notes

STOPPED = "continueOnError=false and details are missing: transcription and audits are skipped"

IGNORING = {
    Reason.NOT_FOUND: "Ignoring NOT_FOUND fiches (404)",
    Reason.GROUPE_NOT_SELECTED: "Ignoring fiches outside selected groupes",
    Reason.MISSING_GROUPE: "Ignoring fiches without groupe",
    Reason.TOO_MANY_RECORDINGS: "Ignoring fiches with too many recordings",
    Reason.NO_RECORDINGS: "onlyWithRecordings=true: ignoring fiches without recordings",
}


def settle_fetch(ticket: RunTicket, *, database: Database, clock: Clock) -> list[int]:
    """Numbers of the batches with fiches to transcribe or audit: none after a failure that the schedule does not go on
    through, and none in a run that has ended."""
    now = clock.now()
    with database.transaction() as session:
        if has_ended(session, ticket):
            return []
        row = held_run(session, ticket)
        schedule = tries_of(session, ticket.run_id).schedule
        failed = failures(session, ticket.run_id)
        if row.fetched_at is None:
            row.fetched_at = now
            row.stopped_after_fetch = failed > 0 and not schedule.continue_on_error
            counts = vars(tally(session, ticket.run_id, row.selected_fiches))
            write_log(session, row.id, now, "info", "Fiche detail fetch complete (distributed)", counts)
            for reason, ignored in ignored_by_reason(session, row.id).items():
                write_log(session, row.id, now, "info", IGNORING[reason], {"count": ignored})
            tell_progress(session, ticket, now)
            write_notes(session, run_note(as_run(row), "DONE: fiche-details-gate", data=counts))
            if row.stopped_after_fetch:
                write_log(session, row.id, now, "warning", STOPPED, {"failed": failed})
        wants_more = schedule.run_transcription or schedule.run_audits
        everybody = row.stopped_after_fetch or not wants_more
        succeed_fetched(session, ticket.run_id, now, without_recordings=not everybody)
        session.flush()
        return pending_batches(session, ticket.run_id)
