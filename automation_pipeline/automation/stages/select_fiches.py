"""Decide which fiches the run is about, once, and write them down as the run's ledger."""

from datetime import datetime

from automation_pipeline.automation.domain.batches import batch_size
from automation_pipeline.automation.domain.run import RunTicket
from automation_pipeline.automation.domain.selection import FicheSelection, SelectionMode, manual_ids
from automation_pipeline.automation.store.ledger import open_ledger, pending_batches
from automation_pipeline.automation.store.runs import has_ended, hold_attempt, selection_of, write_log
from automation_pipeline.automation.tables import RunRow
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import PermanentError
from automation_pipeline.storage.database import Database, Session


def select_fiches(ticket: RunTicket, *, database: Database, clock: Clock, processes: int) -> list[int]:
    """Numbers of the batches that still have work: none in a run that has ended. A later attempt finds the selection
    made and adds nothing."""
    with database.transaction() as session:
        if has_ended(session, ticket):
            return []
        row = hold_attempt(session, ticket)
        if row.selected_at is None:
            _select(session, row, processes, clock.now())
        return pending_batches(session, ticket.run_id)


def _select(session: Session, row: RunRow, processes: int, now: datetime) -> None:
    fiche_ids = _resolve(session, row, now)
    open_ledger(session, row.id, fiche_ids, batch_size(len(fiche_ids), processes), now)
    row.selected_at = now
    row.selected_fiches = row.total_fiches = len(fiche_ids)
    session.flush()


def _resolve(session: Session, row: RunRow, now: datetime) -> tuple[str, ...]:
    selection: FicheSelection = selection_of(session, row)
    if selection.mode is not SelectionMode.MANUAL:
        raise PermanentError(f"This version selects fiches by their ids only, not by {selection.mode}.")
    write_log(session, row.id, now, "info", "Processing manual fiche selection")
    fiche_ids = manual_ids(selection)
    if fiche_ids:
        write_log(session, row.id, now, "info", f"Using {len(fiche_ids)} manually selected fiches")
    else:
        write_log(session, row.id, now, "warning", "No fiches in manual selection")
    return fiche_ids
