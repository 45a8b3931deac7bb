"""Runs that are left alone for a while, because nobody could work on them."""

from sqlalchemy import or_, update
from sqlalchemy.orm import Session

from automation_pipeline.pricing.domain.states import ACTIVE_RUN_STATES
from automation_pipeline.pricing.store.holds import RUNS
from automation_pipeline.pricing.tables import RuleRunRow
from automation_pipeline.storage.instants import database_now


def put_off(session: Session, run_id: int, seconds: float, reason: str) -> bool:
    """False where nothing is wanted of the run, somebody else works on it, or it waits for longer already."""
    row = RuleRunRow
    wants_work = or_(row.status.in_(ACTIVE_RUN_STATES), row.wish.is_not(None))
    waits_less = or_(row.resume_at.is_(None), row.resume_at < database_now(seconds))
    found = session.scalar(
        update(row)
        .where(row.id == run_id, wants_work, RUNS.is_free(), waits_less)
        .values(resume_at=database_now(seconds), error_message=reason)
        .returning(row.id)
        .execution_options(synchronize_session=False)
    )
    return found is not None
