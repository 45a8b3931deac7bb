"""Fetching a batch: every fiche ends as a row; what has ended is not asked for again; old attempts write nothing."""

import asyncio
from collections import Counter

import pytest
from sqlalchemy import func, select

from automation_pipeline.automation.domain.run import OutcomeStatus, RunTicket
from automation_pipeline.automation.stages.fetch_batch import fetch_batch
from automation_pipeline.automation.stages.open_run import open_run
from automation_pipeline.automation.store.ledger import outcomes
from automation_pipeline.automation.store.runs import StaleAttemptError, get_run
from automation_pipeline.core.errors import PermanentError, TransientError
from automation_pipeline.fiches.tables import FicheCache
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.factories import an_open_run, an_opening
from automation_pipeline_tests.fakes.crm import FakeFicheSource, fiche, recording


def fetch(
    ticket: RunTicket, source: FakeFicheSource, database: Database, clock: StandingClock
) -> Counter[OutcomeStatus]:
    return asyncio.run(fetch_batch(ticket, 0, database=database, source=source, clock=clock))


def test_every_way_to_end_is_a_row(database: Database, clock: StandingClock) -> None:
    ticket = an_open_run(database, clock, ["1", "2", "3", "4"])
    source = FakeFicheSource([fiche("1", recording("c1"), recording("c2"))])
    source.fail_always("3", TransientError("The CRM answered 503 for fiche 3."))
    source.fail_always("4", PermanentError("The CRM refused our token for fiche 4 (status 403)."))
    ended = fetch(ticket, source, database, clock)

    with database.reading() as session:
        rows, run = outcomes(session, ticket.run_id), get_run(session, ticket.run_id)
    assert [(r.fiche_id, r.status, r.error or r.ignore_reason, r.recordings_count) for r in rows] == [
        ("1", "successful", None, 2),
        ("2", "ignored", "Fiche not found (404)", None),
        ("3", "failed", "The CRM answered 503 for fiche 3.", None),
        ("4", "failed", "The CRM refused our token for fiche 4 (status 403).", None),
    ]
    assert ended == {"successful": 1, "ignored": 1, "failed": 2}
    assert run.phase == "fetching"


def test_repeating_the_batch_asks_for_nothing_that_has_ended(database: Database, clock: StandingClock) -> None:
    ticket = an_open_run(database, clock)
    source = FakeFicheSource([fiche("1"), fiche("2")])
    source.fail_once("3", ZeroDivisionError())  # type: ignore[arg-type]  a bug, on purpose
    with pytest.raises(ZeroDivisionError):
        fetch(ticket, source, database, clock)
    fetch(ticket, source, database, clock)
    assert sorted(source.asked) == ["1", "2", "3", "3"]
    with database.reading() as session:
        assert {row.status for row in outcomes(session, ticket.run_id)} == {"successful", "ignored"}


def test_an_attempt_that_was_fenced_off_writes_nothing(database: Database, clock: StandingClock) -> None:
    old = an_open_run(database, clock)
    open_run(an_opening(1, "dagster-2", dagster_root_run_id="dagster-1"), database=database, clock=clock)
    with pytest.raises(StaleAttemptError):
        fetch(old, FakeFicheSource([fiche("1")]), database, clock)
    with database.reading() as session:
        assert {row.status for row in outcomes(session, old.run_id)} == {"pending"}
        assert session.scalar(select(func.count()).select_from(FicheCache)) == 0
