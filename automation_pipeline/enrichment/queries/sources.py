"""Queries about sources: breakers, daily calls, login tokens."""

from dataclasses import dataclass
from datetime import date, datetime, timedelta

from sqlalchemy import case, or_, select, update
from sqlalchemy.orm import Session

from automation_pipeline.core.clock import Clock
from automation_pipeline.enrichment.models import SourceApi
from automation_pipeline.enrichment.tables import SourceStatusRow
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.statements import insert_into


@dataclass(frozen=True)
class SourceStatus:
    """`open_until`: nobody calls it before. `used`: calls of `quota_on`."""

    source: SourceApi
    open_until: datetime | None = None
    open_reason: str | None = None
    failures: int = 0
    quota_on: date | None = None
    quota_used: int = 0

    def is_resting(self, now: datetime) -> bool:
        return self.rests_seconds(now) > 0

    def rests_seconds(self, now: datetime) -> float:
        return 0.0 if self.open_until is None else max((self.open_until - now).total_seconds(), 0.0)

    def used_on(self, day: date) -> int:
        return self.quota_used if self.quota_on == day else 0


def source_statuses(session: Session) -> dict[SourceApi, SourceStatus]:
    """One that was never called stands well."""
    known = {
        SourceApi(row.source_api): _source_status(row)
        for row in session.scalars(select(SourceStatusRow))
    }
    return {source: known.get(source, SourceStatus(source)) for source in SourceApi}


def take_call(session: Session, source: SourceApi, calls_a_day: int | None, now: datetime) -> bool:
    """One of the calls of the day (UTC). False: none is left."""
    row, table = {"source_api": source, "updated_at": now, "quota_on": now.date()}, SourceStatusRow
    is_today = table.quota_on == now.date()
    used = case((is_today, table.quota_used), else_=0)
    left = True if calls_a_day is None else used < calls_a_day
    insert = insert_into(session, table).values(**row, failures=0, quota_used=1)
    taken = session.scalar(
        insert.on_conflict_do_update(
            index_elements=["source_api"],
            set_={"quota_used": used + 1, "quota_on": now.date(), "updated_at": now},
            where=left if calls_a_day is not None else None,  # pyright: ignore[reportArgumentType]  a bool only without
        ).returning(table.source_api)
    )
    return taken is not None


def give_back_call(session: Session, source: SourceApi, day: date, now: datetime) -> None:
    """One that was taken of that day, and not made."""
    session.execute(
        update(SourceStatusRow)
        .where(
            SourceStatusRow.source_api == source,
            SourceStatusRow.quota_on == day,
            SourceStatusRow.quota_used > 0,
        )
        .values(quota_used=SourceStatusRow.quota_used - 1, updated_at=now)
        .execution_options(synchronize_session=False)
    )


def record_answer(session: Session, source: SourceApi, now: datetime) -> None:
    """It answers: what failed before does not count any more."""
    session.execute(
        update(SourceStatusRow)
        .where(SourceStatusRow.source_api == source, SourceStatusRow.failures > 0)
        .values(failures=0, updated_at=now)
        .execution_options(synchronize_session=False)
    )


def record_failure(session: Session, source: SourceApi, now: datetime, *, is_silent: bool) -> int:
    """How many of its kind there are in a row by now."""
    said = {"is_silent": is_silent, "updated_at": now}
    row = {"source_api": source, "failures": 1, "quota_used": 0, **said}
    insert = insert_into(session, SourceStatusRow).values(**row)
    in_a_row = case((SourceStatusRow.is_silent == is_silent, SourceStatusRow.failures + 1), else_=1)
    counted = insert.on_conflict_do_update(
        index_elements=["source_api"], set_={"failures": in_a_row, **said}
    ).returning(SourceStatusRow.failures)
    return session.scalar(counted) or 1


def set_rest(
    session: Session, source: SourceApi, length: timedelta, reason: str, now: datetime
) -> None:
    """Nobody calls it for so long. A longer rest that is under way stays."""
    until = now + length
    is_longer = or_(SourceStatusRow.open_until.is_(None), SourceStatusRow.open_until < until)
    row = {
        "source_api": source, "open_until": until, "open_reason": reason, "failures": 0, "quota_used": 0,
        "updated_at": now,
    }  # fmt: skip
    insert = insert_into(session, SourceStatusRow).values(**row)
    session.execute(
        insert.on_conflict_do_update(
            index_elements=["source_api"],
            set_={"open_until": until, "open_reason": reason, "failures": 0, "updated_at": now},
            where=is_longer,
        )
    )


def _source_status(row: SourceStatusRow) -> SourceStatus:
    return SourceStatus(
        SourceApi(row.source_api),
        row.open_until,
        row.open_reason,
        row.failures,
        row.quota_on,
        row.quota_used,
    )


class DatabaseLoginTokens:
    def __init__(self, database: Database, clock: Clock, source: SourceApi) -> None:
        self._database, self._clock, self._source = database, clock, source

    def current(self) -> str | None:
        row = SourceStatusRow
        with self._database.reading() as session:
            return session.scalar(
                select(row.token).where(
                    row.source_api == self._source, row.token_until > self._clock.now()
                )
            )

    def keep(self, token: str, until: datetime) -> None:
        kept = {"token": token, "token_until": until, "updated_at": self._clock.now()}
        with self._database.transaction() as session:
            insert = insert_into(session, SourceStatusRow)
            insert = insert.values(source_api=self._source, failures=0, quota_used=0, **kept)
            session.execute(insert.on_conflict_do_update(index_elements=["source_api"], set_=kept))

    def forget(self, token: str) -> None:
        with self._database.transaction() as session:
            session.execute(
                update(SourceStatusRow)
                .where(SourceStatusRow.source_api == self._source, SourceStatusRow.token == token)
                .values(token=None, token_until=None, updated_at=self._clock.now())
                .execution_options(synchronize_session=False)
            )
