"""What is kept for so many days, and then taken away bit by bit: short transactions that wait for nobody's rows."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import cast

from sqlalchemy import ColumnElement, delete, func, inspect, select
from sqlalchemy.orm import Session

from automation_pipeline.storage.bulk import among
from automation_pipeline.storage.database import Database, DatabaseNotReadyError
from automation_pipeline.storage.metadata import Table

BATCH = 1000


@dataclass(frozen=True)
class Look:
    """One look at what is old: at most `limit` rows of a kind go. A dry one only counts, however many there are."""

    now: datetime
    limit: int = BATCH
    is_dry: bool = False

    def before(self, keep_days: int) -> datetime:
        return self.now - timedelta(days=keep_days)


@dataclass(frozen=True)
class Kind:
    """Rows that may go when they are old: those of which `are_old` holds, told the instant before which all is old.
    Whatever refers to them goes with them."""

    name: str
    table: type[Table]
    are_old: Callable[[datetime], Sequence[ColumnElement[bool]]]

    @property
    def key(self) -> ColumnElement[int]:
        """Or of texts: it is only compared with itself."""
        return cast("ColumnElement[int]", inspect(self.table).primary_key[0])

    def chosen(self, before: datetime) -> tuple[ColumnElement[bool], ...]:
        """Not the newest row: SQLite would give its number out again, and a number names its thing for good."""
        newest = select(func.max(self.key)).scalar_subquery()
        numbered = [self.key < newest] if self.key.type.python_type is int else []
        return *self.are_old(before), *numbered


# With the days that it is kept; 0: for ever.
Kept = tuple[Kind, int]


def look_through(kept: Iterable[Kept], look: Look, *, database: Database) -> dict[str, int]:
    """How many of each kind went, or would."""
    return {kind.name: _look_at(kind, keep_days, look, database) if keep_days else 0 for kind, keep_days in kept}


def _look_at(kind: Kind, keep_days: int, look: Look, database: Database) -> int:
    before = look.before(keep_days)
    try:
        # Looked for without a lock: on SQLite all writers would stand behind a long search.
        with database.reading() as session:
            if look.is_dry:
                return _count(session, kind, before)
            found = _oldest(session, kind, before, look.limit)
        if not found:
            return 0
        with database.transaction() as session:
            return _take_away(session, kind, before, found)
    except DatabaseNotReadyError:  # its table comes with the upgrade that is under way
        return 0


def _count(session: Session, kind: Kind, before: datetime) -> int:
    return session.scalar(select(func.count(kind.key)).where(*kind.chosen(before))) or 0


def _oldest(session: Session, kind: Kind, before: datetime, limit: int) -> Sequence[int]:
    return session.scalars(select(kind.key).where(*kind.chosen(before)).order_by(kind.key).limit(limit)).all()


def _take_away(session: Session, kind: Kind, before: datetime, found: Sequence[int]) -> int:
    """Those of them that are still old and that nobody holds."""
    old = kind.are_old(before)
    query = select(kind.key).where(among(session, kind.key, found), *old).order_by(kind.key)
    free = session.scalars(query.with_for_update(of=kind.table, skip_locked=True)).all()
    if free:
        gone = delete(kind.table).where(among(session, kind.key, free), *old)
        session.execute(gone.execution_options(synchronize_session=False))
    return len(free)
