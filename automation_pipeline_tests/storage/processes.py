"""Work of the processes in the storage and migration tests. Each opens its own database connection."""

import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

from sqlalchemy import select, text

from automation_pipeline import migrations
from automation_pipeline.storage.claims import LeaseRow
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.outbox import (
    Event,
    OutboxRow,
    claim_in_order,
    claim_waiting,
    enqueue,
    lock_publishing,
    mark_published,
)
from automation_pipeline.storage.rate_limits import pause as begin_pause
from automation_pipeline.storage.run_requests import NewRunRequest, file_requests, offer_waiting
from automation_pipeline.storage.statements import upsert
from automation_pipeline_tests.waiting import pause

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


@contextmanager
def opened(url: str) -> Generator[Database]:
    database = Database(url)
    try:
        yield database
    finally:
        database.dispose()


def event(key: str, aggregate: str = "correlation", **payload: object) -> Event:
    return Event(
        "tenant", key, "run.completed", "test", aggregate, LONG_AGO, {"key": key, **payload}
    )


def new_request(key: str, job: str = "job") -> NewRunRequest:
    return NewRunRequest(key, job, {"ops": {"key": key}}, {"tag": key})


def lease_rows(numbers: Sequence[int], owner: str, token: int) -> list[dict[str, object]]:
    return [
        {
            "key": f"row {number}",
            "owner": owner,
            "token": token,
            "acquired_at": LONG_AGO,
            "expires_at": LONG_AGO,
        }
        for number in numbers
    ]


def enqueue_events(url: str, keys: Sequence[str]) -> None:
    with opened(url) as database, database.transaction() as session:
        enqueue(session, [event(key) for key in keys])


def publish_all(url: str, worker: str, batch: int) -> list[int]:
    """Claim and publish until there is nothing left to claim. Returns the ids."""
    ids: list[int] = []
    with opened(url) as database:
        while True:
            with database.transaction() as session:
                claimed = [
                    row.id for row in claim_waiting(session, worker, limit=batch, hold_seconds=60.0)
                ]
            if not claimed:
                return ids
            pause(0.002)
            with database.transaction() as session:
                mark_published(session, worker, claimed)
            ids += claimed


def publish_in_order(url: str, worker: str, batch: int) -> list[tuple[float, str]]:
    """Publication times and keys. Claims of other workers can expire, so only an empty table ends it."""
    messages: list[tuple[float, str]] = []
    with opened(url) as database:
        while is_any_left(database):
            with database.transaction() as session:
                claims = claim_in_order(
                    session, worker, limit=batch, hold_seconds=60.0, except_name=""
                )
            messages += [(time.monotonic(), claimed.event.key) for claimed in claims]
            pause(0.002)
            with database.transaction() as session:
                lock_publishing(session)
                mark_published(session, worker, [claimed.id for claimed in claims])
    return messages


def is_any_left(database: Database) -> bool:
    with database.reading() as session:
        return (
            session.scalar(select(OutboxRow.id).where(OutboxRow.published_at.is_(None)).limit(1))
            is not None
        )


def pause_once(url: str) -> None:
    with opened(url) as database, database.transaction() as session:
        begin_pause(session, "pusher", first_seconds=2, cap_seconds=30)


def file_all(url: str, job: str, keys: Sequence[str]) -> None:
    with opened(url) as database, database.transaction() as session:
        file_requests(session, [new_request(key, job) for key in keys], LONG_AGO)


def offer_all(url: str, batch: int) -> list[str]:
    keys: list[str] = []
    with opened(url) as database:
        while True:
            with database.transaction() as session:
                offered = [request.key for request in offer_waiting(session, limit=batch)]
            if not offered:
                return keys
            keys += offered


def upsert_rounds(url: str, numbers: Sequence[int], owner: str, rounds: int) -> None:
    with opened(url) as database:
        for token in range(1, rounds + 1):
            with database.transaction() as session:
                rows = lease_rows(numbers, owner, token)
                upsert(session, LeaseRow, rows, key=("key",), fields=("owner", "token"))


def look_in(url: str) -> None:
    with opened(url) as database:
        database.create_file()
        with database.transaction() as session:
            session.execute(text("CREATE TABLE IF NOT EXISTS opened (by_whom INTEGER)"))


def upgrade(url: str) -> None:
    with opened(url) as database:
        migrations.upgrade(database)
