"""Put an end to a backfill: what waits is cancelled, what is at work is asked to stop."""

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError
from automation_pipeline.org_jobs.domain.backfill import Backfill
from automation_pipeline.org_jobs.domain.states import BatchState
from automation_pipeline.org_jobs.domain.tenancy import Within
from automation_pipeline.org_jobs.store.audit_log import note
from automation_pipeline.org_jobs.store.backfills import get_backfill, locked_batch, stop_batch
from automation_pipeline.storage.database import Database

CANCELLED = "Its backfill was cancelled."


def cancel_backfill(
    batch_id: int, *, within: Within, database: Database, clock: Clock, actor: str, reason: str | None = None
) -> Backfill:
    """Safe to repeat. ConflictError when all of it is done."""
    with database.transaction() as session:
        batch, now = locked_batch(session, batch_id, within), clock.now()
        if batch.status == BatchState.CANCELLED:
            return get_backfill(session, batch_id, within)
        if batch.status != BatchState.RUNNING:
            raise ConflictError(f"Backfill {batch_id} is over: there is nothing to cancel.")
        batch.status, batch.finished_at = BatchState.CANCELLED, now
        session.flush()
        stop_batch(session, batch, actor, now, f"{CANCELLED} {reason}" if reason else CANCELLED)
        note(
            session,
            org_id=batch.org_id,
            actor=actor,
            action="cancel",
            entity="backfill",
            entity_id=str(batch_id),
            reason=reason,
            now=now,
        )
        return get_backfill(session, batch_id, within)
