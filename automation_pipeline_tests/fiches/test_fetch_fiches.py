"""Fetch many fiches: each ends in one outcome, and fresh details are not fetched again."""

import asyncio
from collections.abc import Sequence
from datetime import date, datetime, timedelta

import pytest
from sqlalchemy import select

from automation_pipeline.core.errors import TransientError
from automation_pipeline.fiches.mirror import fetch_days, fetch_fiches
from automation_pipeline.fiches.models.fiches import (
    DetailsKnown,
    FetchFailed,
    FetchOutcome,
    FicheNotFound,
    SalesList,
)
from automation_pipeline.fiches.queries.mirror import save_sales_list
from automation_pipeline.fiches.tables import FicheCacheRow
from automation_pipeline.storage.database import Database, Session
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.crm import FakeFicheSource, fiche, recording, summary

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


def test_the_fiches_sold_on_some_days_are_fetched_with_progress(
    database: Database, clock: FakeClock
) -> None:
    source = FakeFicheSource([fiche("1"), fiche("2"), fiche("4")])
    source.fail_once("2", TransientError("The CRM answered 503 for fiche 2."))
    days = [date(2026, 2, 3), date(2026, 2, 4)]
    with database.transaction() as session:
        for day, fiche_ids in zip(days, (["1", "2", "3"], ["4"]), strict=True):
            entries = tuple(map(summary, fiche_ids))
            save_sales_list(session, SalesList(day, len(entries), entries), clock.now())
    progress: list[tuple[int, int]] = []

    def fetch_first_day() -> dict[str, int]:
        return asyncio.run(
            fetch_days(
                days[:1],
                database=database,
                source=source,
                clock=clock,
                progress=lambda done, total: progress.append((done, total)),
            )
        )

    assert fetch_first_day() == {"The CRM answered 503 for a fiche.": 1}
    assert (sorted(source.requests), progress[-1]) == (["1", "2", "3"], (3, 3))
    clock.advance(timedelta(hours=240))
    assert fetch_first_day() == {}
    assert sorted(source.requests[3:]) == ["2", "3"]
    clock.advance(timedelta(seconds=1))
    fetch_first_day()
    assert source.requests[5:] == ["1"]
    assert progress[-1] == (3, 3)


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
