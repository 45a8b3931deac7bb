"""Turns: who does something that two at once must not, does it one after another."""

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from automation_pipeline.storage.bulk import is_postgres


def take_turn(session: Session, name: str) -> None:
    """To the end of the transaction: the second of two at once finds what the first has written."""
    if is_postgres(session):  # SQLite has one writer anyhow
        session.execute(select(func.pg_advisory_xact_lock(func.hashtext(name))))
