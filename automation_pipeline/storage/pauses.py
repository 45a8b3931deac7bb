"""Pauses that all processes keep while something outside is away, each longer than the one before, up to a cap.

A pause is a row among the leases that nobody holds: from `acquired_at` to `expires_at` it lasts.
"""

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from automation_pipeline.storage.bulk import insert_into
from automation_pipeline.storage.claims import LeaseRow
from automation_pipeline.storage.instants import database_now, database_time

_OWNER = "pause"
# For so long somebody outside may ask to be left alone.
LONGEST_ASKED_SECONDS = 3600.0


def is_paused(session: Session, name: str) -> bool:
    lasting = LeaseRow.key == _key(name), LeaseRow.expires_at > database_now()
    return session.scalar(select(LeaseRow.key).where(*lasting)) is not None


def pause(session: Session, name: str, *, first_seconds: float, cap_seconds: float, at_least: float = 0.0) -> None:
    """Twice as long as the last one, unless that is long over. While one lasts nothing changes: several may notice the
    same failure. `at_least` is what was asked for from outside; it may go beyond the cap, up to an hour."""
    now = database_time(session)
    last = session.execute(
        select(LeaseRow.acquired_at, LeaseRow.expires_at).where(LeaseRow.key == _key(name)).with_for_update()
    ).one_or_none()
    if last is not None and last.expires_at > now:
        return
    is_recent = last is not None and (now - last.expires_at).total_seconds() <= 2 * cap_seconds
    doubled = 2 * (last.expires_at - last.acquired_at).total_seconds() if last is not None and is_recent else 0.0
    seconds = max(min(max(doubled, first_seconds), cap_seconds), min(at_least, LONGEST_ASKED_SECONDS))
    values = {"owner": _OWNER, "token": 0, "acquired_at": database_now(), "expires_at": database_now(seconds)}
    insert = insert_into(session, LeaseRow).values(key=_key(name), **values)
    session.execute(
        insert.on_conflict_do_update(
            index_elements=[LeaseRow.key], set_=values, where=LeaseRow.expires_at <= database_now()
        )
    )


def last_pause_seconds(session: Session, name: str) -> float:
    """How long the last one was, or is; 0 once it works again."""
    last = session.execute(select(LeaseRow.acquired_at, LeaseRow.expires_at).where(LeaseRow.key == _key(name)))
    return sum((row.expires_at - row.acquired_at).total_seconds() for row in last)


def end_pause(session: Session, name: str) -> None:
    """It works again: the next pause is short."""
    session.execute(delete(LeaseRow).where(LeaseRow.key == _key(name)).execution_options(synchronize_session=False))


def _key(name: str) -> str:
    return f"pause:{name}"
