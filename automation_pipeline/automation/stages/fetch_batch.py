"""Bring the full details of one batch's fiches home; each leaves its outcome in the ledger while the batch runs."""

from collections import Counter
from collections.abc import Sequence

from automation_pipeline.automation.domain.outcomes import after_fetch
from automation_pipeline.automation.domain.run import OutcomeStatus, Phase, RunTicket
from automation_pipeline.automation.store.ledger import pending_fiches, record_moves
from automation_pipeline.automation.store.runs import enter_phase, hold_attempt
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.pool import work_through
from automation_pipeline.fiches.domain.fiche import FetchOutcome
from automation_pipeline.fiches.ports import FicheSource
from automation_pipeline.fiches.stages.fetch_details import fetch_details
from automation_pipeline.fiches.store import save_outcomes
from automation_pipeline.storage.database import Database


async def fetch_batch(
    ticket: RunTicket, batch: int, *, database: Database, source: FicheSource, clock: Clock, width: int
) -> Counter[OutcomeStatus]:
    """How many fiches ended how. Fiches that have ended before are not asked for again."""
    ended: Counter[OutcomeStatus] = Counter()
    with database.transaction() as session:
        enter_phase(session, ticket, Phase.FETCHING)
    with database.reading() as session:
        fiche_ids = pending_fiches(session, ticket.run_id, batch)

    async def fetch(fiche_id: str) -> FetchOutcome:
        return await fetch_details(fiche_id, source=source)

    def write(outcomes: Sequence[FetchOutcome]) -> None:
        now, moves = clock.now(), [after_fetch(outcome) for outcome in outcomes]
        with database.transaction() as session:
            hold_attempt(session, ticket)
            save_outcomes(session, outcomes, now)
            record_moves(session, ticket.run_id, moves, now)
        ended.update(move.status for move in moves)

    await work_through(fiche_ids, fetch, write, width=width)
    return ended
