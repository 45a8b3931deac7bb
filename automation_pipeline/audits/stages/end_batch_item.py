"""Count the end of an audit in the batch that asked for it, and end the batch with its last."""

from automation_pipeline.audits.domain.batch_events import batch_completed, batch_progress
from automation_pipeline.audits.store.batches import end_item
from automation_pipeline.storage.database import Session
from automation_pipeline.storage.instants import database_time
from automation_pipeline.storage.outbox import enqueue


def end_batch_item(session: Session, tracking_id: str, error: str | None) -> None:
    """Nothing for an audit that no batch waits for. Saying it twice counts it once."""
    now = database_time(session)
    batch = end_item(session, tracking_id, error, now)
    if batch is None:
        return
    told = [batch_progress(batch.batch_id, batch.total, batch.succeeded, batch.failed, now)]
    if batch.completed_at is not None:
        span = (batch.started_at, batch.completed_at)
        told.append(batch_completed(batch.batch_id, batch.total, batch.succeeded, batch.failed, span))
    enqueue(session, told)
