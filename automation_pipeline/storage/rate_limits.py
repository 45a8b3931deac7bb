"""Rate limits in the database, and pauses of callers during an outage of a provider."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from sqlalchemy import Float, TextClause, bindparam, delete, select, text
from sqlalchemy.orm import Mapped, Session, mapped_column

from automation_pipeline.core.coordination import Rate
from automation_pipeline.storage.claims import LeaseRow
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.statements import (
    database_now,
    database_time,
    epoch_sql,
    insert_into,
    is_postgres,
)
from automation_pipeline.storage.types import Table


class RateLimitRow(Table):
    """`paid_until` is GCRA's theoretical arrival time: the instant until which starts are reserved."""

    __tablename__ = "rate_limits"

    key: Mapped[str] = mapped_column(primary_key=True)
    paid_until: Mapped[float] = mapped_column(Float(53))


# Longer than any wait in practice.
_NEVER = 1e12


@dataclass(frozen=True)
class _RateRequest:
    key: str
    rate: Rate
    max_wait_seconds: float | None = None


class DatabaseRateLimiter:
    def __init__(self, database: Database) -> None:
        self._database = database

    def reserve(
        self, key: str, rate: Rate, *, max_wait_seconds: float | None = None
    ) -> float | None:
        request = _RateRequest(key, rate, max_wait_seconds)
        return self._database.write_in_bulk_soon(_reserve_each, request)

    async def reserve_soon(self, key: str, rate: Rate) -> float | None:
        return await self._database.write_in_bulk(_reserve_each, _RateRequest(key, rate))


def _reserve_each(session: Session, requests: Sequence[_RateRequest]) -> list[float | None]:
    """Requests with the same key and no maximum wait share a statement."""
    waits: list[float | None] = [None] * len(requests)
    groups: dict[object, list[int]] = {}
    for number, request in enumerate(requests):
        alone = None if request.max_wait_seconds is None else number
        groups.setdefault((request.key, request.rate, alone), []).append(number)
    for numbers in groups.values():
        for number, wait in zip(
            numbers, _reserve(session, requests[numbers[0]], len(numbers)), strict=False
        ):
            waits[number] = wait
    return waits


def _reserve(session: Session, request: _RateRequest, starts: int) -> list[float]:
    """The waits of several starts, one after the other. Nothing is reserved if the first wait is
    too long."""
    interval = request.rate.interval_seconds
    credit = (request.rate.burst - 1) * interval
    longest = request.max_wait_seconds
    values = {
        "key": request.key,
        "step": interval * starts,
        "longest": _NEVER if longest is None else credit + longest,
    }
    reserved = session.execute(_reserving(postgres=is_postgres(session)), values).first()
    if reserved is None:
        return []
    paid_until, now_seconds = reserved
    first = paid_until - starts * interval - credit - now_seconds
    return [max(0.0, first + number * interval) for number in range(starts)]


@cache
def _reserving(*, postgres: bool) -> TextClause:
    now, later = epoch_sql(postgres=postgres), "greatest" if postgres else "max"
    statement = text(
        f"""
        INSERT INTO rate_limits (key, paid_until) VALUES (:key, {now} + :step)
        ON CONFLICT (key) DO UPDATE SET paid_until = {later}(rate_limits.paid_until, {now}) + :step
        WHERE rate_limits.paid_until - {now} <= :longest
        RETURNING paid_until, {now}
        """  # noqa: S608  constant parts
    )
    floats = ("step", "longest")
    return statement.bindparams(*(bindparam(name, type_=Float(53)) for name in floats))


_OWNER = "pause"
# The longest pause that a provider may ask for.
LONGEST_ASKED_SECONDS = 3600.0


def is_paused(session: Session, name: str) -> bool:
    lasting = LeaseRow.key == _key(name), LeaseRow.expires_at > database_now()
    return session.scalar(select(LeaseRow.key).where(*lasting)) is not None


def pause(
    session: Session, name: str, *, first_seconds: float, cap_seconds: float, at_least: float = 0.0
) -> None:
    """Begin a pause twice as long as the last one, or a short one if the last pause ended long ago.
    A pause in progress is not changed, because several processes may notice the same outage.
    `at_least` is the wait that the provider requested; it may exceed the cap, up to an hour."""
    now = database_time(session)
    last = session.execute(
        select(LeaseRow.acquired_at, LeaseRow.expires_at)
        .where(LeaseRow.key == _key(name))
        .with_for_update()
    ).one_or_none()
    if last is not None and last.expires_at > now:
        return
    is_recent = last is not None and (now - last.expires_at).total_seconds() <= 2 * cap_seconds
    doubled = (
        2 * (last.expires_at - last.acquired_at).total_seconds()
        if last is not None and is_recent
        else 0.0
    )
    seconds = max(
        min(max(doubled, first_seconds), cap_seconds), min(at_least, LONGEST_ASKED_SECONDS)
    )
    values = {
        "owner": _OWNER,
        "token": 0,
        "acquired_at": database_now(),
        "expires_at": database_now(seconds),
    }
    insert = insert_into(session, LeaseRow).values(key=_key(name), **values)
    session.execute(
        insert.on_conflict_do_update(
            index_elements=[LeaseRow.key], set_=values, where=LeaseRow.expires_at <= database_now()
        )
    )


def last_pause_seconds(session: Session, name: str) -> float:
    """The length of the last or current pause; 0 after a success."""
    last = session.execute(
        select(LeaseRow.acquired_at, LeaseRow.expires_at).where(LeaseRow.key == _key(name))
    )
    return sum((row.expires_at - row.acquired_at).total_seconds() for row in last)


def end_pause(session: Session, name: str) -> None:
    """The provider works again, so the next pause is short."""
    session.execute(
        delete(LeaseRow)
        .where(LeaseRow.key == _key(name))
        .execution_options(synchronize_session=False)
    )


def _key(name: str) -> str:
    return f"pause:{name}"
