"""How the outbox stands: how many events wait to leave, since when, and how many were given up."""

from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from automation_pipeline.storage.instants import database_time
from automation_pipeline.storage.outbox import NEVER, OutboxRow


@dataclass(frozen=True)
class OutboxStanding:
    """`lag_seconds` is the age of the oldest event that waits, 0 when none does. `parked` wait for somebody's hand."""

    waiting: int
    parked: int
    lag_seconds: float


def outbox_standing(session: Session) -> OutboxStanding:
    """One query over what is not published, and the database's clock."""
    row = OutboxRow
    waits = row.available_at < NEVER
    counts = (
        func.count().filter(waits),
        func.count().filter(row.available_at >= NEVER),
        func.min(row.occurred_at).filter(waits),
    )
    waiting, parked, oldest = session.execute(select(*counts).where(row.published_at.is_(None))).tuples().one()
    lag = (database_time(session) - oldest).total_seconds() if waiting else 0.0
    return OutboxStanding(waiting, parked, max(0.0, lag))
