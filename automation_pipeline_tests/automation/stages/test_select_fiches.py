"""Selection: one pending row a fiche, made once."""

import pytest

from automation_pipeline.automation.stages.create_schedule import create_schedule
from automation_pipeline.automation.stages.open_run import open_run
from automation_pipeline.automation.stages.select_fiches import select_fiches
from automation_pipeline.automation.store.ledger import outcomes
from automation_pipeline.automation.store.runs import StaleAttemptError, get_run, run_logs
from automation_pipeline.core.errors import PermanentError
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.factories import a_schedule, an_open_run, an_opening


def test_every_id_becomes_one_pending_row_in_the_order_given(database: Database, clock: StandingClock) -> None:
    ticket = an_open_run(database, clock, ["7, 8\n9", "8", " 10 "])
    with database.reading() as session:
        rows, run = outcomes(session, ticket.run_id), get_run(session, ticket.run_id)
    assert [(row.fiche_id, row.status) for row in rows] == [(i, "pending") for i in ("7", "8", "9", "10")]
    assert (run.selected_fiches, run.total_fiches) == (4, 4)


def test_fiches_are_cut_into_batches(database: Database, clock: StandingClock) -> None:
    schedule = a_schedule(database, clock, [str(number) for number in range(120)])
    ticket = open_run(an_opening(schedule.id), database=database, clock=clock)
    assert select_fiches(ticket, database=database, clock=clock, processes=2) == [0, 1, 2]


def test_a_later_attempt_finds_the_selection_made(database: Database, clock: StandingClock) -> None:
    first = an_open_run(database, clock)
    retry = an_opening(1, "dagster-2", dagster_root_run_id="dagster-1")
    second = open_run(retry, database=database, clock=clock)
    assert select_fiches(second, database=database, clock=clock, processes=1) == [0]
    with database.reading() as session:
        assert len(outcomes(session, first.run_id)) == 3
        messages = [row.message for row in run_logs(session, first.run_id)]
    assert messages.count("Using 3 manually selected fiches") == 1


def test_an_empty_selection_has_no_batches_and_says_so(database: Database, clock: StandingClock) -> None:
    ticket = an_open_run(database, clock, [])
    assert select_fiches(ticket, database=database, clock=clock, processes=1) == []
    with database.reading() as session:
        assert ("warning", "No fiches in manual selection") in [
            (row.level, row.message) for row in run_logs(session, ticket.run_id)
        ]


def test_a_fenced_off_attempt_selects_nothing(database: Database, clock: StandingClock) -> None:
    schedule = a_schedule(database, clock)
    first = open_run(an_opening(schedule.id), database=database, clock=clock)
    open_run(an_opening(schedule.id, "dagster-2", dagster_root_run_id="dagster-1"), database=database, clock=clock)
    with pytest.raises(StaleAttemptError):
        select_fiches(first, database=database, clock=clock, processes=1)
    with database.reading() as session:
        assert outcomes(session, first.run_id) == []


def test_a_selection_by_date_is_refused_in_plain_words(database: Database, clock: StandingClock) -> None:
    selection = {"mode": "date_range", "dateRange": "yesterday"}
    given = {"name": "By date", "scheduleType": "MANUAL", "ficheSelection": selection}
    schedule = create_schedule(given, database=database, clock=clock)
    ticket = open_run(an_opening(schedule.id), database=database, clock=clock)
    with pytest.raises(PermanentError, match="not by date_range"):
        select_fiches(ticket, database=database, clock=clock, processes=1)
