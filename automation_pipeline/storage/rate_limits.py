"""Rate limits in the database: `core.coordination.RateLimiter` without Redis, one atomic statement a reservation."""

from functools import partial

from sqlalchemy import Float, UpdateBase, bindparam, case
from sqlalchemy.orm import Mapped, Session, mapped_column

from automation_pipeline.core.coordination import Rate
from automation_pipeline.storage.bulk import dialects_insert
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.instants import database_epoch
from automation_pipeline.storage.metadata import Table
from automation_pipeline.storage.prepared import execute


class RateLimitRow(Table):
    """`paid_until` is GCRA's theoretical arrival time: the instant up to which starts are already reserved."""

    __tablename__ = "rate_limits"

    key: Mapped[str] = mapped_column(primary_key=True)
    paid_until: Mapped[float] = mapped_column(Float(53))


# Longer than anybody waits, in seconds.
_NEVER = 1e12


class DatabaseRateLimiter:
    def __init__(self, database: Database) -> None:
        self._database = database

    def reserve(self, key: str, rate: Rate, *, max_wait_seconds: float | None = None) -> float | None:
        return self._database.write_soon(partial(_reserve, key, rate, max_wait_seconds))

    async def reserve_soon(self, key: str, rate: Rate) -> float | None:
        return await self._database.write(partial(_reserve, key, rate, None))


def _reserve(key: str, rate: Rate, max_wait_seconds: float | None, session: Session) -> float | None:
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
