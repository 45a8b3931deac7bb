"""Claiming events in the order of each aggregate: nothing of it leaves before what was written earlier.

An aggregate is what has one correlation id. Those of transactions that overlap may be written in either order.
"""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, ScalarSelect, Subquery, exists, func, or_, select, union_all, update
from sqlalchemy.orm import Session, aliased

from automation_pipeline.storage.bulk import is_postgres
from automation_pipeline.storage.instants import database_now
from automation_pipeline.storage.outbox import NEVER, ClaimedEvent, OutboxRow, event_in, of_aggregates_since

_TURN = 7_163_402_551_906  # the key of our advisory lock, any number


def claim_in_order(
    session: Session,
    worker: str,
    *,
    limit: int,
    hold_seconds: float,
    but: str,
    caused_since: datetime | None = None,
) -> list[ClaimedEvent]:
    """The oldest that may go now, but those of that name. An aggregate with an earlier event that somebody else holds,
    or that waits for its next attempt, is passed over; parked ones hold up nobody. A claim is no attempt yet."""
    take_turn(session)
    now = select(database_now()).scalar_subquery()  # read once, so that an index can be searched for it
    unpublished = OutboxRow.published_at.is_(None), OutboxRow.event_name != but
    free = or_(OutboxRow.claimed_until.is_(None), OutboxRow.claimed_until <= now)
    oldest = (
        select(OutboxRow.id)
        .where(
            *unpublished,
            OutboxRow.available_at <= now,
            free,
            ~_is_held_up(_stuck(but, now)),
            *of_aggregates_since(caused_since),
        )
        .order_by(OutboxRow.id)
        .limit(limit)
        .cte("oldest")
    )
    claimed = session.scalars(
        update(OutboxRow)
        .where(OutboxRow.id.in_(select(oldest.c.id)))
        .values(claimed_by=worker, claimed_until=database_now(hold_seconds))
        .returning(OutboxRow)
        .execution_options(synchronize_session=False)
    )
    return [ClaimedEvent(row.id, row.attempts + 1, event_in(row)) for row in sorted(claimed, key=lambda row: row.id)]


def _stuck(but: str, now: ScalarSelect[datetime]) -> Subquery:
    """The first event of each aggregate that cannot go now: few, whatever the backlog."""
    row = aliased(OutboxRow)
    unpublished = row.published_at.is_(None), row.event_name != but
    stuck = union_all(
        select(row.correlation_id, row.id).where(*unpublished, row.claimed_until > now),
        select(row.correlation_id, row.id).where(*unpublished, row.available_at > now, row.available_at < NEVER),
    ).subquery()
    return select(stuck.c.correlation_id, func.min(stuck.c.id).label("id")).group_by(stuck.c.correlation_id).subquery()


def _is_held_up(stuck: Subquery) -> ColumnElement[bool]:
    return exists().where(stuck.c.correlation_id == OutboxRow.correlation_id, stuck.c.id < OutboxRow.id)


def count_attempts(session: Session, worker: str, ids: Sequence[int]) -> None:
    """They were tried in vain. Counted before they are put back or parked: a worker that dies uses up no attempt."""
    ours = OutboxRow.id.in_(ids), OutboxRow.claimed_by == worker
    tried = {"attempts": OutboxRow.attempts + 1}
    if ids:
        session.execute(update(OutboxRow).where(*ours).values(tried).execution_options(synchronize_session=False))


def hand_back(session: Session, worker: str, ids: Sequence[int], *, error: str | None) -> None:
    """They were not tried, or it was not about them. Whoever settles claims takes a turn first."""
    ours = OutboxRow.id.in_(ids), OutboxRow.claimed_by == worker
    untried = {"claimed_by": None, "claimed_until": None, "last_error": error}
    if ids:
        session.execute(update(OutboxRow).where(*ours).values(untried).execution_options(synchronize_session=False))


def take_turn(session: Session) -> None:
    """One at a time claims events, or gives them back, to the end of its transaction. On SQLite writers do anyway."""
    if is_postgres(session):  # in a statement of its own: the next one sees what the one before us has done
        session.execute(select(func.pg_advisory_xact_lock(_TURN)))
