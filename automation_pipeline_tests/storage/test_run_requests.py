"""Run requests for Dagster: one row per key, offered until a run takes it, and to one sensor at a time."""

from itertools import chain

from sqlalchemy import func, select, update

from automation_pipeline.core.launching import LaunchState
from automation_pipeline.core.logs import CORRELATION_TAG, correlated
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.run_requests import (
    OFFER_AGAIN_SECONDS,
    NewRunRequest,
    RunRequestRow,
    file_requests,
    hold_requests,
    launch_states,
    mark_refused,
    mark_taken,
    offer_waiting,
    refusals,
)
from automation_pipeline.storage.statements import database_now
from automation_pipeline_tests.processes import PROCESS_COUNT, run_in_processes
from automation_pipeline_tests.storage.processes import LONG_AGO, file_all, new_request, offer_all


def file(database: Database, *requests: NewRunRequest) -> None:
    with database.transaction() as session:
        file_requests(session, requests, LONG_AGO)


def offer(database: Database, limit: int = 100) -> list[NewRunRequest]:
    with database.transaction() as session:
        return offer_waiting(session, limit=limit)


def age_offers(database: Database, seconds: float) -> None:
    with database.transaction() as session:
        session.execute(update(RunRequestRow).values(offered_at=database_now(-seconds)))


def states(database: Database) -> list[tuple[str, str | None, str | None]]:
    with database.reading() as session:
        rows = session.scalars(select(RunRequestRow).order_by(RunRequestRow.id))
        return [(row.state, row.dagster_run_id, row.reason) for row in rows]


def test_a_request_is_offered_unchanged(database: Database) -> None:
    file(database, new_request("a"))
    assert offer(database) == [new_request("a")]


def test_a_request_inherits_the_correlation_id_unless_it_has_one(database: Database) -> None:
    own = NewRunRequest("own", "job", {}, {CORRELATION_TAG: "own-1"})
    with correlated("request-7"):
        file(database, new_request("a"), own)
    inherited, kept = offer(database)
    assert inherited.tags == {**new_request("a").tags, CORRELATION_TAG: "request-7"}
    assert kept.tags == {CORRELATION_TAG: "own-1"}


def test_filing_a_key_twice_keeps_the_first_request(database: Database) -> None:
    file(database, new_request("a", "first"))
    file(database, new_request("a", "second"))
    assert offer(database) == [new_request("a", "first")]


def test_the_oldest_requests_are_offered_first_up_to_the_limit(database: Database) -> None:
    for key in ("c", "a", "b"):
        file(database, new_request(key))
    assert [offered.key for offered in offer(database, limit=2)] == ["c", "a"]
    assert [offered.key for offered in offer(database, limit=2)] == ["b"]


def test_a_request_not_taken_by_a_run_is_offered_again_after_a_delay(
    database: Database,
) -> None:
    file(database, new_request("a"))
    offer(database)
    age_offers(database, OFFER_AGAIN_SECONDS - 10)
    assert offer(database) == []
    age_offers(database, OFFER_AGAIN_SECONDS)
    assert offer(database) == [new_request("a")]
    assert offer(database) == []


def test_a_taken_request_is_not_offered_again(database: Database) -> None:
    file(database, new_request("a"))
    with database.transaction() as session:
        mark_taken(session, "a", "run 1")
    assert offer(database) == []
    assert states(database) == [("taken", "run 1", None)]


def test_a_refused_request_is_not_offered_and_keeps_its_reason(database: Database) -> None:
    file(database, new_request("a"))
    with database.transaction() as session:
        mark_refused(session, "a", "no such job")
    assert offer(database) == []
    assert states(database) == [("refused", None, "no such job")]


def test_a_request_is_taken_once_and_can_be_refused_later(database: Database) -> None:
    file(database, new_request("a"))
    with database.transaction() as session:
        mark_taken(session, "a", "run 1")
        mark_taken(session, "a", "run 2")
    file(database, new_request("a"))
    assert states(database) == [("taken", "run 1", None)]
    with database.transaction() as session:
        mark_refused(session, "a", "the key is missing")
        mark_refused(session, "a", "too late")
        mark_taken(session, "a", "run 3")
        assert refusals(session, ["a", "b"]) == {"a": "the key is missing"}
    assert states(database) == [("refused", "run 1", "the key is missing")]


def test_a_key_filed_by_several_processes_is_one_row(database_url: str, database: Database) -> None:
    keys = [f"request {number}" for number in range(50)]
    orders = (keys, keys[::-1], keys[25:] + keys[:25], keys)
    run_in_processes(
        file_all,
        *((database_url, f"job {number}", order) for number, order in enumerate(orders)),
    )
    with database.reading() as session:
        assert session.scalar(select(func.count()).select_from(RunRequestRow)) == len(keys)
        assert set(session.scalars(select(RunRequestRow.request_key))) == set(keys)


def test_several_processes_never_offer_a_request_twice(
    database_url: str, database: Database
) -> None:
    file(database, *(new_request(f"request {number}") for number in range(200)))
    offers = chain.from_iterable(run_in_processes(offer_all, *[(database_url, 7)] * PROCESS_COUNT))
    assert sorted(offers) == sorted(f"request {number}" for number in range(200))


def test_only_requests_that_were_not_offered_are_held(database: Database) -> None:
    file(database, new_request("offered"))
    offer(database)
    file(database, new_request("held"), new_request("other"))
    with database.transaction() as session:
        assert hold_requests(session, ["offered", "held", "unknown"], "this process") == ["held"]
        assert hold_requests(session, ["held"], "another process") == []
    assert states(database) == [
        ("waiting", None, None),
        ("taken", "this process", None),
        ("waiting", None, None),
    ]
    with database.reading() as session:
        assert launch_states(session, ["offered", "held", "other"]) == {
            "offered": (LaunchState.OFFERED, None),
            "held": (LaunchState.TAKEN, None),
            "other": (LaunchState.WAITING, None),
        }
