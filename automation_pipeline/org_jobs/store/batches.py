"""Batches of jobs that were made together, and how they stand."""

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import case, exists, select, update
from sqlalchemy.orm import Session

from automation_pipeline.org_jobs.domain.states import ACTIVE_RUN_STATES, BatchState, RunState
from automation_pipeline.org_jobs.tables import BatchRow, JobRow
from automation_pipeline.storage.bulk import among


def close_batches(session: Session, batch_ids: Collection[int], now: datetime) -> None:
    """Those of which no job is left to be done."""
    if not batch_ids:
        return
    of_batch = select(JobRow.id).where(JobRow.batch_id == BatchRow.id)
    left = exists(of_batch.where(JobRow.status.in_(ACTIVE_RUN_STATES)))
    spoilt = exists(of_batch.where(JobRow.status.in_((RunState.FAILED, RunState.CANCELLED))))
    verdict = case((spoilt, BatchState.COMPLETED_WITH_FAILURES), else_=BatchState.COMPLETED)
    session.execute(
        update(BatchRow)
        .where(among(session, BatchRow.id, batch_ids), BatchRow.status == BatchState.RUNNING, ~left)
        .values(status=verdict, finished_at=now)
        .execution_options(synchronize_session=False)
    )
