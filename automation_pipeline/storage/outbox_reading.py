"""Following the events of one run or one fiche, without ever missing one whose transaction commits late.

Ids are drawn before their transactions commit, so they do not become visible in their order. A follower reads window
by window: the events of all transactions that had ended by the time the window was opened, in the order of their ids.
Numbers that no transaction has had yet came with a dump of another cluster: they belong to the first window.
"""

import re
from dataclasses import dataclass

from sqlalchemy import BigInteger, ColumnElement, Text, and_, cast, func, or_, select
from sqlalchemy.orm import Session

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.events import Event
from automation_pipeline.storage.bulk import is_postgres
from automation_pipeline.storage.outbox import OutboxRow, event_in

_WRITTEN = re.compile(r"([0-9]{1,18})-([0-9]{1,18})-([0-9]{1,18})")


@dataclass(frozen=True)
class Bookmark:
    """How far somebody has read: all events of transactions before `since`, and up to `id` of those before `until`.
    SQLite has one writer at a time: there the id says it all."""

    since: int = 0
    until: int = 0
    id: int = 0

    def __str__(self) -> str:
        """As `Last-Event-ID` brings it back."""
        return f"{self.since}-{self.until}-{self.id}"

    @classmethod
    def read(cls, text: str) -> "Bookmark":
        """InvalidInputError: it is none of ours."""
        match = _WRITTEN.fullmatch(text)
        if match is None:
            raise InvalidInputError("No such event", (("Last-Event-ID", "it is not an id that this stream has sent"),))
        return cls(*map(int, match.groups()))


BEGINNING = Bookmark()


def events_after(
    session: Session, after: Bookmark, *, correlation_id: str | None = None, fiche_id: str | None = None, limit: int
) -> list[tuple[Bookmark, Event]]:
    """The next ones of the run or of the fiche, each with the bookmark to go on from. Internal ones are left out.

    Nothing is shown before all transactions that began earlier have ended, whatever they write.
    """
    if (correlation_id is None) == (fiche_id is None):
        raise ValueError("Events are followed by a correlation id or by a fiche's id.")
    followed = OutboxRow.fiche_id == fiche_id if correlation_id is None else OutboxRow.correlation_id == correlation_id
    shown = followed, OutboxRow.event_name.not_like("%/%")
    if not is_postgres(session):
        return _page(session, (*shown, OutboxRow.id > after.id), Bookmark(), limit)
    settled = _settled(session)
    if after.until > settled:  # a bookmark of another cluster: the ids came along with the dump
        after = Bookmark(0, settled, after.id)
    begun = _written_within(after.since, after.until)
    found = _page(session, (*shown, *begun, OutboxRow.id > after.id), after, limit)
    if len(found) < limit and settled > after.until:
        opened = Bookmark(after.until, settled)
        fresh = _written_within(opened.since, opened.until)
        found += _page(session, (*shown, *fresh), opened, limit - len(found))
    return found


def newest_bookmark(session: Session) -> Bookmark:
    """From here on only what comes."""
    if is_postgres(session):
        settled = _settled(session)
        return Bookmark(settled, settled)
    return Bookmark(id=session.scalar(select(func.max(OutboxRow.id))) or 0)


def is_withheld(session: Session, correlation_id: str) -> bool:
    """An event of the run is written, but not shown yet: an older transaction has not ended."""
    if not is_postgres(session):
        return False
    late = OutboxRow.transaction_id >= _settled(session), OutboxRow.transaction_id < _next_transaction()
    of_run = OutboxRow.correlation_id == correlation_id
    return session.scalar(select(OutboxRow.id).where(of_run, *late).limit(1)) is not None


def _page(
    session: Session, conditions: tuple[ColumnElement[bool], ...], window: Bookmark, limit: int
) -> list[tuple[Bookmark, Event]]:
    rows = session.scalars(select(OutboxRow).where(*conditions).order_by(OutboxRow.id).limit(limit))
    return [(Bookmark(window.since, window.until, row.id), event_in(row)) for row in rows]


def _written_within(since: int, until: int) -> tuple[ColumnElement[bool], ...]:
    within = and_(OutboxRow.transaction_id >= since, OutboxRow.transaction_id < until)
    if since == 0 and until > 0:
        return (or_(within, OutboxRow.transaction_id >= _next_transaction()),)
    return (within,)


def _settled(session: Session) -> int:
    """All transactions before this one have ended, and no new one will be before it."""
    oldest_running = func.pg_snapshot_xmin(func.pg_current_snapshot())
    return session.scalars(select(cast(cast(oldest_running, Text), BigInteger))).one()


def _next_transaction() -> ColumnElement[int]:
    """What the statement that asks sees of this cluster's transactions is all below it."""
    return cast(cast(func.pg_snapshot_xmax(func.pg_current_snapshot()), Text), BigInteger)
