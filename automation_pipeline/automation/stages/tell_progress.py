"""Tell how far a run has come; the same standing is told once."""

from automation_pipeline.automation.domain import events
from automation_pipeline.automation.domain.run import Phase, RunTicket
from automation_pipeline.automation.store.ledger import tally, work_done
from automation_pipeline.automation.store.runs import get_run, write_log
from automation_pipeline.core.clock import Clock
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.outbox import enqueue


def tell_progress(ticket: RunTicket, *, database: Database, clock: Clock) -> None:
    with database.transaction() as session:
        run, now = get_run(session, ticket.run_id), clock.now()
        standing = tally(session, ticket.run_id, run.selected_fiches)
        transcribed, audits = work_done(session, ticket.run_id)
        made = events.Progress(run.phase or Phase.SELECTION, standing, audits)
        enqueue(session, [events.progress(run, made, now)])
        if run.phase is Phase.AUDITING:
            words = f"Audit progress: {audits} audits of {standing.selected} fiches ended"
            details = {**vars(standing), "transcribed": transcribed, "audits": audits}
            write_log(session, ticket.run_id, now, "info", words, details)
