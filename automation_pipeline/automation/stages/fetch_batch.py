"""Bring the full details of one batch's fiches home; each leaves its outcome in the ledger while the batch runs."""

from collections import Counter
from collections.abc import Sequence

from automation_pipeline.automation.domain.outcomes import after_fetch
from automation_pipeline.automation.domain.run import OutcomeStatus, Phase, RunTicket
from automation_pipeline.automation.store.ledger import pending_fiches, record_moves
from automation_pipeline.automation.store.runs import enter_phase, get_run, hold_attempt
from automation_pipeline.core.clock import Clock
from automation_pipeline.fiches.domain.fiche import FetchOutcome
from automation_pipeline.fiches.ports import FicheSource
from automation_pipeline.fiches.stages.fetch_fiches import fetch_fiches
from automation_pipeline.storage.database import Database, Session


async def fetch_batch(
    ticket: RunTicket, batch: int, *, database: Database, source: FicheSource, clock: Clock
) -> Counter[OutcomeStatus]:
    """How many fiches ended how. Fiches that have ended before are not asked for again."""
    ended: Counter[OutcomeStatus] = Counter()
    with database.transaction() as session:
        enter_phase(session, ticket, Phase.FETCHING)
    with database.reading() as session:
        since = get_run(session, ticket.run_id).started_at
        fiche_ids = pending_fiches(session, ticket.run_id, batch)

    def settle(session: Session, outcomes: Sequence[FetchOutcome]) -> None:
        hold_attempt(session, ticket)
        moves = [after_fetch(outcome) for outcome in outcomes]
        record_moves(session, ticket.run_id, moves, clock.now())
        ended.update(move.status for move in moves)

    await fetch_fiches(fiche_ids, since=since, settle=settle, database=database, source=source, clock=clock)
    return ended
