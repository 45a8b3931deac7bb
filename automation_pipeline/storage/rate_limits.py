"""Rate limits in the database: `core.coordination.RateLimiter` without Redis, one atomic statement a reservation."""

from sqlalchemy import Float, case, literal
from sqlalchemy.orm import Mapped, Session, mapped_column

from automation_pipeline.core.coordination import Rate
from automation_pipeline.storage.bulk import insert_into
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.instants import database_epoch
from automation_pipeline.storage.metadata import Table


class RateLimitRow(Table):
    """`paid_until` is GCRA's theoretical arrival time: the instant up to which starts are already reserved."""

    __tablename__ = "rate_limits"

    key: Mapped[str] = mapped_column(primary_key=True)
    paid_until: Mapped[float] = mapped_column(Float(53))


class DatabaseRateLimiter:
    def __init__(self, database: Database) -> None:
        self._database = database

    def reserve(self, key: str, rate: Rate, *, max_wait_seconds: float | None = None) -> float | None:
        now, interval = database_epoch(), rate.interval_seconds
        credit = (rate.burst - 1) * interval
        begins = case((RateLimitRow.paid_until > now, RateLimitRow.paid_until), else_=now)
        within = (
            None if max_wait_seconds is None else RateLimitRow.paid_until - credit - now <= literal(max_wait_seconds)
        )

        def take(session: Session) -> tuple[float, float] | None:
            insert = insert_into(session, RateLimitRow).values(key=key, paid_until=now + interval)
            later = insert.on_conflict_do_update(
                index_elements=[RateLimitRow.key], set_={"paid_until": begins + interval}, where=within
            )
            return session.execute(later.returning(RateLimitRow.paid_until, now)).tuples().one_or_none()

        reserved = self._database.write_soon(take)
        if reserved is None:
            return None
        paid_until, now_seconds = reserved
        return max(0.0, paid_until - interval - credit - now_seconds)
