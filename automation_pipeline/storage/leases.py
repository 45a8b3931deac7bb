"""Leases in the database: `core.coordination.Leases` without Redis. Every instant is the database's own."""

from datetime import datetime
from functools import partial

from sqlalchemy import BigInteger, Float, UpdateBase, bindparam, case, cast, select, update
from sqlalchemy.orm import Mapped, Session, mapped_column

from automation_pipeline.core.coordination import Holder, Lease
from automation_pipeline.storage.bulk import dialects_insert
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.instants import database_epoch, database_now
from automation_pipeline.storage.metadata import Table
from automation_pipeline.storage.prepared import execute
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
        return self._database.write_soon(partial(_take, key, owner, ttl_seconds))

    async def acquire_soon(self, key: str, owner: str, ttl_seconds: float) -> Lease | None:
        return await self._database.write(partial(_take, key, owner, ttl_seconds))

    def extend(self, lease: Lease, ttl_seconds: float) -> bool:
        return self._database.write_soon(partial(_set_expiry, lease, ttl_seconds))

    def release(self, lease: Lease) -> bool:
        return self._database.write_soon(partial(_set_expiry, lease, 0.0))

    async def release_soon(self, lease: Lease) -> bool:
        return await self._database.write(partial(_set_expiry, lease, 0.0), anyway=True)

    def holder(self, key: str) -> Holder | None:
        with self._database.reading() as session:
            row = session.get(LeaseRow, key)
            now = session.scalar(select(database_now()))
        if row is None or now is None or row.expires_at <= now:
            return None
        return Holder(row.owner, row.token, (row.expires_at - now).total_seconds())


_TTL = bindparam("ttl", type_=Float(53))
_SET_EXPIRY = (
    update(LeaseRow)
    .where(
        LeaseRow.key == bindparam("of_key"),
        LeaseRow.token == bindparam("with_token"),
        LeaseRow.expires_at > database_now(),
    )
    .values(expires_at=database_now(_TTL))
)


def _taking(postgres: bool) -> UpdateBase:
    # Tokens follow the clock, so that they keep rising even after a released row was cleaned away.
    clock_token = cast(database_epoch() * 1000, BigInteger)
    row: dict[str, object] = {
        "key": bindparam("for_key"), "owner": bindparam("by"), "token": clock_token,
        "acquired_at": database_now(), "expires_at": database_now(_TTL),
    }  # fmt: skip
    next_token = case((LeaseRow.token >= clock_token, LeaseRow.token + 1), else_=clock_token)
    taken = dialects_insert(LeaseRow, postgres=postgres).values(row)
    is_free = LeaseRow.expires_at <= database_now()
    return taken.on_conflict_do_update(
        index_elements=[LeaseRow.key], set_={**row, "token": next_token}, where=is_free
    ).returning(LeaseRow.token)


def _take(key: str, owner: str, ttl_seconds: float, session: Session) -> Lease | None:
    token = execute(session, _taking, {"for_key": key, "by": owner, "ttl": ttl_seconds}).value()
    return None if token is None else Lease(key, owner, token)


def _set_expiry(lease: Lease, seconds: float, session: Session) -> bool:
    values = {"of_key": lease.key, "with_token": lease.token, "ttl": seconds}
    return execute(session, _SET_EXPIRY, values).changed == 1
