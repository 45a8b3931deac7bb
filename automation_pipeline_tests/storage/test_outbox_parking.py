"""Events by name, and events that are parked."""

from sqlalchemy import select

from automation_pipeline.storage.database import Database
from automation_pipeline.storage.outbox import (
    OutboxRow,
    claim_waiting,
    enqueue,
    is_waiting,
    park,
    put_all_back,
)
from automation_pipeline_tests.storage.processes import event


def fill(database: Database, *keys: str) -> None:
    with database.transaction() as session:
        enqueue(session, [event(key) for key in keys])


def claim(database: Database, **names: str) -> list[int]:
    with database.transaction() as session:
        return [
            row.id for row in claim_waiting(session, "anna", limit=10, hold_seconds=60.0, **names)
        ]


def test_events_are_claimed_by_name(database: Database) -> None:
    fill(database, "a", "b")
    assert claim(database, only="other") == []
    assert len(claim(database, only="run.completed")) == 2


def test_there_is_something_waiting_until_it_is_claimed(database: Database) -> None:
    seen = []
    for step in (lambda: None, lambda: fill(database, "a"), lambda: claim(database)):
        step()
        with database.reading() as session:
            seen.append(is_waiting(session))
    assert seen == [False, True, False]


def test_several_are_put_back_at_once(database: Database) -> None:
    fill(database, "a", "b")
    ids = claim(database)
    with database.transaction() as session:
        put_all_back(session, "anna", ids, error="away", delay_seconds=0.0)
    assert claim(database) == ids


def test_a_parked_event_is_never_claimed(database: Database) -> None:
    fill(database, "a")
    [claimed] = claim(database)
    with database.transaction() as session:
        park(session, "anna", claimed, error="broken")
    assert claim(database) == []
    with database.reading() as session:
        row = session.scalars(select(OutboxRow)).one()
    assert (row.last_error, row.published_at, row.claimed_by) == ("broken", None, None)
