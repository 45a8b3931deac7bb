"""Claims: the right to work on something for a limited time. A claim has a token that only
increases, so that writes of an earlier holder are refused. Claims are always in the database: in
columns of a row (`RowClaims`), or for keys without a row in the table `leases`. All times are those
of the database's clock."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from random import uniform
from typing import Any, Generic, TypeVar

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Float,
    Text,
    TextClause,
    and_,
    bindparam,
    or_,
    select,
    text,
    tuple_,
    update,
)
from sqlalchemy.orm import InstrumentedAttribute, Mapped, Session, mapped_column

from automation_pipeline.core.coordination import Claim, ClaimHolder
from automation_pipeline.core.errors import AutomationError, TransientError
from automation_pipeline.core.logs import log
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.statements import database_now, epoch_sql, is_postgres, now_sql
from automation_pipeline.storage.types import Table, TextList, UtcDateTime

Row = TypeVar("Row", bound=Table)
Key = TypeVar("Key", str, int)

LONGEST_PAUSE_SECONDS = 1.0

_log = log(__name__)


class LeaseRow(Table):
    __tablename__ = "leases"

    key: Mapped[str] = mapped_column(primary_key=True)
    owner: Mapped[str]
    token: Mapped[int] = mapped_column(BigInteger)
    acquired_at: Mapped[datetime] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)


class LostClaimError(TransientError):
    """The claim has expired or belongs to another worker, so the result of the work is discarded."""


@dataclass(frozen=True)
class Taken(Generic[Key]):
    key: Key
    token: int
    until: datetime


class RowClaims(Generic[Row, Key]):
    """Claims in columns of a table. Its package may add conditions."""

    def __init__(
        self,
        row: type[Row],
        key: InstrumentedAttribute[Key],
        *,
        owner: InstrumentedAttribute[Any],
        token: InstrumentedAttribute[int],
        until: InstrumentedAttribute[Any],
        outlasting: ColumnElement[bool] | None = None,
    ) -> None:
        """While `outlasting` is true for a row, its claim does not expire."""
        self.row, self.key, self.owner, self.token, self.until = row, key, owner, token, until
        self._outlasting = outlasting

    def is_free(self) -> ColumnElement[bool]:
        return or_(self.until.is_(None), self.until <= database_now())

    def is_held(self) -> ColumnElement[bool]:
        return self.until > database_now()

    def is_kept(self) -> ColumnElement[bool]:
        """Whether the holder of the token may still use, extend and release the claim."""
        if self._outlasting is None:
            return self.is_held()
        return or_(self.is_held(), and_(self.until.is_not(None), self._outlasting))

    def by(
        self, owner: str | ColumnElement[str], seconds: float | ColumnElement[float]
    ) -> dict[str, object]:
        values = {self.owner: owner, self.token: self.token + 1, self.until: database_now(seconds)}
        return {column.key: value for column, value in values.items()}

    def take(
        self,
        session: Session,
        which: Iterable[ColumnElement[bool]],
        owner: str,
        seconds: float,
        **changes: object,
    ) -> list[Taken[Key]]:
        """Claim the free rows in one statement, with further changes of them."""
        taken = (
            update(self.row)
            .where(*which, self.is_free())
            .values(**self.by(owner, seconds), **changes)
            .returning(self.key, self.token, self.until)
            .execution_options(synchronize_session=False)
        )
        return [Taken(*row) for row in session.execute(taken).tuples()]

    def extend(
        self, session: Session, held: Sequence[tuple[Key, int]], seconds: float
    ) -> set[tuple[Key, int]]:
        """Extend the claims that are still held, and return their keys and tokens. A worker whose
        claim is missing must stop."""
        return self.change(session, held, **{self.until.key: database_now(seconds)})

    def release(self, session: Session, held: Sequence[tuple[Key, int]]) -> set[tuple[Key, int]]:
        """Release the claims that are still held. Each row is free at once, and its next token is
        higher."""
        has_until = not self.until.property.columns[0].nullable
        values: dict[str, object] = {self.until.key: database_now() if has_until else None}
        if not has_until:
            values[self.owner.key] = None
        return self.change(session, held, **values)

    def require(self, session: Session, key: Key, token: int) -> Row:
        """Lock the row until the transaction ends. Raises LostClaimError if it is not held under this token."""
        locked = (
            select(self.row)
            .where(self.key == key, self.token == token, self.is_kept())
            .with_for_update()
        )
        row = session.scalar(locked.execution_options(populate_existing=True))
        if row is None:
            raise LostClaimError(f"The claim on {key} was lost.")
        return row

    def change(
        self, session: Session, held: Sequence[tuple[Key, int]], **values: object
    ) -> set[tuple[Key, int]]:
        """Change the rows that are still held under these tokens, and return their keys."""
        if not held:
            return set()
        changed = (
            update(self.row)
            .where(
                self.key.in_([key for key, _ in held]),  # SQLite uses no index for pairs
                tuple_(self.key, self.token).in_(held),
                self.is_kept(),
            )
            .values(**values)
            .returning(self.key, self.token)
            .execution_options(synchronize_session=False)
        )
        return {(key, token) for key, token in session.execute(changed).tuples()}


_KEYS = RowClaims(
    LeaseRow, LeaseRow.key, owner=LeaseRow.owner, token=LeaseRow.token, until=LeaseRow.expires_at
)


def take(
    session: Session, keys: Iterable[str], owner: str, ttl_seconds: float, limit: int | None = None
) -> list[Claim]:
    """Claim the free keys in one statement; with `limit`, only so many of them, chosen at random."""
    wanted = sorted(set(keys))
    values = {"wanted": wanted, "owner": owner, "ttl": ttl_seconds}
    if limit is not None:
        values["limit"] = limit
    statement = _taking(postgres=is_postgres(session), is_limited=limit is not None)
    return [Claim(key, owner, token) for key, token in session.execute(statement, values)]


@cache
def _taking(*, postgres: bool, is_limited: bool) -> TextClause:
    """Keys are locked in their order, so that two workers that claim the same keys do not deadlock.
    Tokens follow the clock, so that they keep increasing after the row of a released claim was
    deleted."""
    now, until = (now_sql(seconds, postgres=postgres) for seconds in ("0.0", ":ttl"))
    clock = f"CAST({epoch_sql(postgres=postgres)} * 1000 AS BIGINT)"
    keys = "unnest(:wanted) AS wanted(value)" if postgres else "json_each(:wanted) AS wanted"
    order = "random() LIMIT :limit" if is_limited else "wanted.value"
    statement = text(
        f"""
        INSERT INTO leases (key, owner, token, acquired_at, expires_at)
        SELECT wanted.value, :owner, {clock}, {now}, {until} FROM {keys}
        WHERE NOT EXISTS (
            SELECT 1 FROM leases WHERE leases.key = wanted.value AND leases.expires_at > {now}
        )
        ORDER BY {order}
        ON CONFLICT (key) DO UPDATE SET
            owner = excluded.owner,
            token = CASE WHEN leases.token >= {clock} THEN leases.token + 1 ELSE {clock} END,
            acquired_at = {now},
            expires_at = {until}
        WHERE leases.expires_at <= {now}
        RETURNING key, token
        """  # noqa: S608  constant parts
    )
    return statement.bindparams(
        bindparam("wanted", type_=TextList),
        bindparam("owner", type_=Text()),
        bindparam("ttl", type_=Float(53)),
    )


@dataclass(frozen=True)
class LeaseRequest:
    keys: tuple[str, ...]
    owner: str
    ttl_seconds: float


def take_for_each(session: Session, requests: Sequence[LeaseRequest]) -> list[Claim | None]:
    """One claim per request, or None. Requests of one owner share a statement if they name one key
    each, or the same keys."""
    taken: list[Claim | None] = [None] * len(requests)
    groups: dict[object, list[int]] = {}
    for number, request in enumerate(requests):
        keys = request.keys if len(request.keys) > 1 else None
        groups.setdefault((keys, request.owner, request.ttl_seconds), []).append(number)
    for numbers in groups.values():
        first = requests[numbers[0]]
        if len(first.keys) > 1:
            claims = take(session, first.keys, first.owner, first.ttl_seconds, len(numbers))
            taken_by = dict(zip(numbers, claims, strict=False))
        else:
            by_key = {requests[number].keys[0]: number for number in reversed(numbers)}
            claims = take(session, by_key, first.owner, first.ttl_seconds)
            taken_by = {by_key[claim.key]: claim for claim in claims}
        for number, claim in taken_by.items():
            taken[number] = claim
    return taken


def extend_each(session: Session, claims: Sequence[tuple[Claim, float]]) -> list[bool]:
    """Set the end of each claim that is still held to so many seconds from now; 0 releases it."""
    kept: set[tuple[str, int]] = set()
    for seconds in {seconds for _, seconds in claims}:
        held = [(claim.key, claim.token) for claim, ttl in claims if ttl == seconds]
        kept |= _KEYS.extend(session, held, seconds)
    return [(claim.key, claim.token) in kept for claim, _ in claims]


class DatabaseClaims:
    """Claims on keys. Each call is a short transaction, which shares its commit with others."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def take(self, key: str, owner: str, ttl_seconds: float) -> Claim | None:
        request = LeaseRequest((key,), owner, ttl_seconds)
        return self._database.write_in_bulk_soon(take_for_each, request)

    async def take_any(self, keys: Sequence[str], owner: str, ttl_seconds: float) -> Claim | None:
        request = LeaseRequest(tuple(keys), owner, ttl_seconds)
        return await self._database.write_in_bulk(take_for_each, request)

    def extend(self, claim: Claim, ttl_seconds: float) -> bool:
        return self._database.write_in_bulk_soon(extend_each, (claim, ttl_seconds))

    async def extend_soon(self, claim: Claim, ttl_seconds: float) -> bool:
        return await self._database.write_in_bulk(extend_each, (claim, ttl_seconds))

    def release(self, claim: Claim) -> bool:
        return self._database.write_in_bulk_soon(extend_each, (claim, 0.0))

    async def release_soon(self, claim: Claim) -> bool:
        """Runs even if the task is cancelled."""
        return await self._database.write_in_bulk(extend_each, (claim, 0.0), even_if_cancelled=True)

    def holder(self, key: str) -> ClaimHolder | None:
        with self._database.reading() as session:
            row = session.get(LeaseRow, key)
            now = session.scalar(select(database_now()))
        if row is None or now is None or row.expires_at <= now:
            return None
        return ClaimHolder(row.owner, row.token, (row.expires_at - now).total_seconds())

    @asynccontextmanager
    async def hold(
        self, key: str, owner: str, ttl_seconds: float, poll_seconds: float = 0.1
    ) -> AsyncGenerator[Claim]:
        """Wait for the claim, and extend it while the body runs. Raises LostClaimError if the claim ended;
        the body is then cancelled."""
        claim, asked_at = await self._wait(key, owner, ttl_seconds, poll_seconds)
        body = asyncio.timeout_at(asked_at + ttl_seconds)
        extending = asyncio.create_task(self._keep_extending(claim, asked_at, ttl_seconds, body))
        try:
            async with body:
                yield claim
        except TimeoutError:
            if not body.expired():
                raise
            has_failed = extending.done() and not extending.cancelled()
            cause = extending.exception() if has_failed else None
            raise LostClaimError(f"The claim on {key} was lost.") from cause
        finally:
            extending.cancel()
            await asyncio.gather(extending, return_exceptions=True)
            try:
                await self.release_soon(claim)
            except AutomationError as error:
                _log.warning("The claim on %s ends only with its time: %s", key, error)

    async def _wait(
        self, key: str, owner: str, ttl_seconds: float, poll_seconds: float
    ) -> tuple[Claim, float]:
        """Return the claim, and the loop's time before the request: the claim lasts at least a TTL
        from then on."""
        now, pause = asyncio.get_running_loop().time, poll_seconds
        while True:
            asked_at = now()
            claim = await self.take_any((key,), owner, ttl_seconds)
            if claim is not None:
                return claim, asked_at
            await asyncio.sleep(uniform(0.5, 1.5) * pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    async def _keep_extending(
        self, claim: Claim, asked_at: float, ttl_seconds: float, body: asyncio.Timeout
    ) -> None:
        """Cancel the body when the claim ends. A bug in this function cancels the body too."""
        now = asyncio.get_running_loop().time
        try:
            while True:
                await asyncio.sleep(asked_at + ttl_seconds / 4 - now())
                asked_at = now()
                try:
                    if not await self.extend_soon(claim, ttl_seconds):
                        return
                    body.reschedule(asked_at + ttl_seconds)
                except AutomationError as error:
                    _log.warning(
                        "The claim on %s could not be extended, which is tried again: %s",
                        claim.key,
                        error,
                    )
        finally:
            with suppress(RuntimeError):  # the deadline of an ended body cannot change
                body.reschedule(now())


class DatabasePermits:
    """Permits of semaphores. A semaphore has one key per permit, and any free key can be claimed."""

    def __init__(self, database: Database) -> None:
        self._claims = DatabaseClaims(database)

    async def acquire(
        self, name: str, limit: int, owner: str, ttl_seconds: float
    ) -> "DatabasePermit | None":
        claim = await self._claims.take_any(
            [f"{name}:{slot}" for slot in range(limit)], owner, ttl_seconds
        )
        return None if claim is None else DatabasePermit(self._claims, claim)


@dataclass(frozen=True)
class DatabasePermit:
    claims: DatabaseClaims
    claim: Claim

    async def extend(self, ttl_seconds: float) -> None:
        await self.claims.extend_soon(self.claim, ttl_seconds)

    async def release(self) -> None:
        await self.claims.release_soon(self.claim)
