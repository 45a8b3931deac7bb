"""Signs of life of what runs beside us, by the database's clock: Dagster's daemon says that it ticks."""

import time
from collections.abc import Callable
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Mapped, Session, mapped_column

from automation_pipeline.storage.bulk import insert_into
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.instants import database_now, database_time
from automation_pipeline.storage.metadata import Table
from automation_pipeline.storage.types import UtcDateTime

DAEMON = "dagster-daemon"
SHORTEST_SECONDS = 5.0


class PulseRow(Table):
    __tablename__ = "pulses"

    name: Mapped[str] = mapped_column(primary_key=True)
    beat_at: Mapped[datetime] = mapped_column(UtcDateTime)


def beat_pulse(session: Session, name: str) -> None:
    insert = insert_into(session, PulseRow)
    session.execute(
        insert.values(name=name, beat_at=database_now()).on_conflict_do_update(
            index_elements=["name"], set_={"beat_at": database_now()}
        )
    )


def beating(database: Database, name: str) -> Callable[[], None]:
    """Beats when it is called, but not more often than every few seconds."""
    last = float("-inf")

    def beat() -> None:
        nonlocal last
        if time.monotonic() - last >= SHORTEST_SECONDS:
            with database.transaction() as session:
                beat_pulse(session, name)
            last = time.monotonic()

    return beat


def seconds_since_beat(session: Session, name: str) -> float | None:
    """None: it never beat."""
    beat_at = session.scalar(select(PulseRow.beat_at).where(PulseRow.name == name))
    return None if beat_at is None else (database_time(session) - beat_at).total_seconds()
