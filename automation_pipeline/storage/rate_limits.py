"""Rate limits in the database, and pauses of callers while a provider is away."""

from functools import partial

from sqlalchemy import Float, UpdateBase, bindparam, case, delete, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from automation_pipeline.core.coordination import Rate
from automation_pipeline.storage.claims import LeaseRow
from automation_pipeline.storage.clock import database_epoch, database_now, database_time
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.prepared import execute
from automation_pipeline.storage.statements import dialects_insert, insert_into
from automation_pipeline.storage.types import Table


class RateLimitRow(Table):
    """`paid_until` is GCRA's theoretical arrival time: the instant up to which starts are already
    reserved."""

    __tablename__ = "rate_limits"

    key: Mapped[str] = mapped_column(primary_key=True)
    paid_until: Mapped[float] = mapped_column(Float(53))


# Longer than anybody waits, in seconds.
_NEVER = 1e12


class DatabaseRateLimiter:
    def __init__(self, database: Database) -> None:
        self._database = database

    def reserve(
        self, key: str, rate: Rate, *, max_wait_seconds: float | None = None
    ) -> float | None:
        return self._database.write_soon(partial(_reserve, key, rate, max_wait_seconds))

    async def reserve_soon(self, key: str, rate: Rate) -> float | None:
        return await self._database.write(partial(_reserve, key, rate, None))


def _reserve(
    key: str, rate: Rate, max_wait_seconds: float | None, session: Session
) -> float | None:
    interval = rate.interval_seconds
    credit = (rate.burst - 1) * interval
    longest = _NEVER if max_wait_seconds is None else credit + max_wait_seconds
    values = {"for_key": key, "step": interval, "longest": longest}
    reserved = execute(session, _reserving, values).first()
    if reserved is None:
        return None
    paid_until, now_seconds = reserved
    return max(0.0, paid_until - interval - credit - now_seconds)


def _reserving(postgres: bool) -> UpdateBase:
    now, interval = database_epoch(), bindparam("step", type_=Float(53))
    begins = case((RateLimitRow.paid_until > now, RateLimitRow.paid_until), else_=now)
    insert = dialects_insert(RateLimitRow, postgres=postgres).values(
        key=bindparam("for_key"), paid_until=now + interval
    )
    return insert.on_conflict_do_update(
        index_elements=[RateLimitRow.key],
        set_={"paid_until": begins + interval},
        where=RateLimitRow.paid_until - now <= bindparam("longest", type_=Float(53)),
    ).returning(RateLimitRow.paid_until, now)


_OWNER = "pause"
# For so long somebody outside may ask to be left alone.
LONGEST_ASKED_SECONDS = 3600.0


def is_paused(session: Session, name: str) -> bool:
    lasting = LeaseRow.key == _key(name), LeaseRow.expires_at > database_now()
    return session.scalar(select(LeaseRow.key).where(*lasting)) is not None


def pause(
    session: Session, name: str, *, first_seconds: float, cap_seconds: float, at_least: float = 0.0
) -> None:
    """Twice as long as the last one, unless that is long over. While one lasts nothing changes:
    several may notice the same failure. `at_least` is what was asked for from outside; it may go
    beyond the cap, up to an hour."""
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
    """How long the last one was, or is; 0 once it works again."""
    last = session.execute(
        select(LeaseRow.acquired_at, LeaseRow.expires_at).where(LeaseRow.key == _key(name))
    )
    return sum((row.expires_at - row.acquired_at).total_seconds() for row in last)


def end_pause(session: Session, name: str) -> None:
    """It works again: the next pause is short."""
    session.execute(
        delete(LeaseRow)
        .where(LeaseRow.key == _key(name))
        .execution_options(synchronize_session=False)
    )


def _key(name: str) -> str:
    return f"pause:{name}"
