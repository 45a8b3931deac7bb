"""Fetch many fiches: each ends in one outcome, and fresh details are not fetched again."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest
from sqlalchemy import select

from automation_pipeline.core.errors import TransientError
from automation_pipeline.fiches.mirror import fetch_fiches
from automation_pipeline.fiches.models.fiches import (
    DetailsKnown,
    FetchFailed,
    FetchOutcome,
    FicheNotFound,
)
from automation_pipeline.fiches.tables import FicheCacheRow
from automation_pipeline.storage.database import Database, Session
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.crm import FakeFicheSource, fiche, recording

IDS = ["1", "2", "3"]


def fetch(
    source: FakeFicheSource,
    database: Database,
    clock: FakeClock,
    since: datetime,
    ids: Sequence[str] = IDS,
) -> dict[str, FetchOutcome]:
    settled: list[FetchOutcome] = []

    def settle(_session: Session, outcomes: Sequence[FetchOutcome]) -> None:
        settled.extend(outcomes)

    asyncio.run(
        fetch_fiches(ids, since=since, settle=settle, database=database, source=source, clock=clock)
    )
    assert sorted(outcome.fiche_id for outcome in settled) == sorted(ids)
    return {outcome.fiche_id: outcome for outcome in settled}


def test_details_newer_than_since_are_not_fetched_again(
    database: Database, clock: FakeClock
) -> None:
    source = FakeFicheSource([fiche("1", recording("a"), recording("b")), fiche("2")])
    start = clock.now()
    fetch(source, database, clock, start)
    clock.advance(timedelta(minutes=2))
    again = fetch(source, database, clock, start)
    assert again == {"1": DetailsKnown("1", 2), "2": DetailsKnown("2", 0), "3": FicheNotFound("3")}
    assert sorted(source.requests) == IDS


def test_a_forced_refresh_fetches_details_older_than_its_start(
    database: Database, clock: FakeClock
) -> None:
    source = FakeFicheSource([fiche("1"), fiche("2")])
    fetch(source, database, clock, clock.now())
    clock.advance(timedelta(seconds=1))
    fetch(source, database, clock, since=clock.now())
    assert sorted(source.requests) == sorted([*IDS, *IDS])


def test_a_not_found_fiche_is_fetched_again_after_a_few_minutes(
    database: Database, clock: FakeClock
) -> None:
    source, start = FakeFicheSource(), clock.now()
    fetch(source, database, clock, start, ["3"])
    clock.advance(timedelta(minutes=6))
    source.add(fiche("3"))
    fetch(source, database, clock, start, ["3"])
    assert source.requests == ["3", "3"]
    with database.reading() as session:
        assert session.scalars(select(FicheCacheRow.details_success)).one() is True


def test_a_failed_fetch_is_an_outcome_and_the_next_call_retries_it(
    database: Database, clock: FakeClock
) -> None:
    source = FakeFicheSource([fiche("1"), fiche("2"), fiche("3")])
    source.fail_once("2", TransientError("The CRM answered 503 for fiche 2."))
    outcome = fetch(source, database, clock, clock.now())["2"]
    assert isinstance(outcome, FetchFailed)
    assert (outcome.transient, outcome.cause) == (True, "The CRM answered 503 for a fiche.")
    fetch(source, database, clock, clock.now())
    assert sorted(source.requests) == ["1", "2", "2", "3"]


def test_an_error_in_the_settle_callback_stores_nothing(
    database: Database, clock: FakeClock
) -> None:
    def refuse(_session: Session, _outcomes: Sequence[FetchOutcome]) -> None:
        raise LookupError

    source = FakeFicheSource([fiche("1")])
    work = fetch_fiches(
        ["1"], since=clock.now(), settle=refuse, database=database, source=source, clock=clock
    )
    with pytest.raises(LookupError):
        asyncio.run(work)
    with database.reading() as session:
        assert session.scalars(select(FicheCacheRow.fiche_id)).all() == []
