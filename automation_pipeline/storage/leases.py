"""Leases in the database: `core.coordination.Leases` without Redis. Every instant is the database's own."""

from datetime import datetime
from functools import partial

from sqlalchemy import BigInteger, CursorResult, case, cast, select, update
from sqlalchemy.orm import Mapped, Session, mapped_column

from automation_pipeline.core.coordination import Holder, Lease
from automation_pipeline.storage.bulk import insert_into
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.instants import database_epoch, database_now
from automation_pipeline.storage.metadata import Table
from automation_pipeline.storage.types import UtcDateTime


class LeaseRow(Table):
    __tablename__ = "leases"

    key: Mapped[str] = mapped_column(primary_key=True)
    owner: Mapped[str]
    token: Mapped[int] = mapped_column(BigInteger)
    acquired_at: Mapped[datetime] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)


class DatabaseLeases:
    def __init__(self, database: Database) -> None:
        self._database = database

    def acquire(self, key: str, owner: str, ttl_seconds: float) -> Lease | None:
        # Tokens follow the clock, so that they keep rising even after a released row was cleaned away.
        clock_token = cast(database_epoch() * 1000, BigInteger)
        row = {
            "key": key, "owner": owner, "token": clock_token,
            "acquired_at": database_now(), "expires_at": database_now(ttl_seconds),
        }  # fmt: skip
        next_token = case((LeaseRow.token >= clock_token, LeaseRow.token + 1), else_=clock_token)
        is_free = LeaseRow.expires_at <= database_now()

        def take(session: Session) -> int | None:
            insert = insert_into(session, LeaseRow).values(row)
            taken = insert.on_conflict_do_update(
                index_elements=[LeaseRow.key], set_={**row, "token": next_token}, where=is_free
            )
            return session.scalar(taken.returning(LeaseRow.token))

        token = self._database.write_soon(take)
        return None if token is None else Lease(key, owner, token)

    def extend(self, lease: Lease, ttl_seconds: float) -> bool:
        return self._database.write_soon(partial(_set_expiry, lease, ttl_seconds))

    def release(self, lease: Lease) -> bool:
        return self._database.write_soon(partial(_set_expiry, lease, 0.0))

    def holder(self, key: str) -> Holder | None:
        with self._database.reading() as session:
            row = session.get(LeaseRow, key)
            now = session.scalar(select(database_now()))
        if row is None or now is None or row.expires_at <= now:
            return None
        return Holder(row.owner, row.token, (row.expires_at - now).total_seconds())


def _set_expiry(lease: Lease, seconds: float, session: Session) -> bool:
    result = session.execute(
        update(LeaseRow)
        .where(LeaseRow.key == lease.key, LeaseRow.token == lease.token, LeaseRow.expires_at > database_now())
        .values(expires_at=database_now(seconds))
        .execution_options(synchronize_session=False)
    )
    return isinstance(result, CursorResult) and result.rowcount == 1
