"""Emit how far a run has come, in the caller's transaction; the same state is emitted once."""

from datetime import datetime

from automation_pipeline.automation.domain import events
from automation_pipeline.automation.domain.run import Phase, RunTicket
from automation_pipeline.automation.store.details import audits_of_run
from automation_pipeline.automation.store.ledger import fetched, tally
from automation_pipeline.automation.store.progress import work_due
from automation_pipeline.automation.store.runs import get_run, tries_of, write_log
from automation_pipeline.storage.database import Session
from automation_pipeline.storage.outbox import enqueue


def tell_progress(session: Session, ticket: RunTicket, now: datetime, *, in_log: bool = True) -> None:
    run = get_run(session, ticket.run_id)
    standing = tally(session, ticket.run_id, run.selected_fiches)
    audits = audits_of_run(session, ticket.run_id)
    made = events.Progress(run.phase or Phase.SELECTION, standing, audits.ended)
    enqueue(session, [events.progress(run, made, now)])
    if not in_log:
        return
    if run.phase is Phase.FETCHING:
        ready = fetched(session, ticket.run_id)
        words = f"Fiche details progress: {ready}/{standing.selected}"
    elif run.phase is Phase.AUDITING:
        words = f"Audit progress: {audit_progress(session, ticket)}"
    else:
        return
    write_log(session, ticket.run_id, now, "info", words, vars(standing))


def audit_progress(session: Session, ticket: RunTicket) -> str:
    """Audits that have ended, out of those that are due: one per configuration and fiche that can be audited."""
    audits = audits_of_run(session, ticket.run_id)
    due = work_due(session, ticket.run_id).fiches_to_audit * len(tries_of(session, ticket.run_id).configs)
    return f"{audits.ended}/{due} (completed={audits.completed}, failed={audits.failed})"
