"""The report of dead letters: which count, and that all are counted where not all are listed."""

import pytest

from automation_pipeline.pricing import monitoring as module
from automation_pipeline.pricing.models.history import DeadLetterReport
from automation_pipeline.pricing.models.shop import FailureKind
from automation_pipeline.pricing.monitoring import (
    acknowledge_dead_letters,
    report_dead_letters,
    retry_dead_letters,
)
from automation_pipeline.pricing.queries.monitoring import dead_letters
from automation_pipeline.pricing.runs import roll_back_run
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.fakes.shop import FakeShop, shelf
from automation_pipeline_tests.pricing.bench import Bench
from automation_pipeline_tests.pricing.dead_letters import dead_targets, failing

KINDS = {"101": "server", "201": "not_found", "301": "not_found"}


@pytest.fixture
def bench(database: Database, clock: StandingClock) -> Bench:
    return Bench(database, clock, FakeShop(*shelf(4)), {"longest_pause_seconds": 0.0})


def told(bench: Bench, project_id: str = "default", **how: bool) -> DeadLetterReport:
    return report_dead_letters(project_id, database=bench.database, clock=bench.clock, **how)


def test_failed_targets_are_counted_by_kind_with_advice(bench: Bench) -> None:
    run = failing(bench, KINDS, hours=25)
    report = told(bench)
    assert (report.total_failed, report.retryable, report.stale) == (3, 1, 3)
    assert report.by_error_type == {FailureKind.NOT_FOUND: 2, FailureKind.SERVER: 1}
    assert (
        report.recommendations[0] == "2 variants no longer exist in the shop: re-sync the catalogue"
    )
    assert [int(one.target_id) for one in report.entries] == dead_targets(bench, run)
    assert {one.run_id for one in report.entries} == {str(run.id)}
    assert bench.events("automation.dlq.report") == []


def test_all_are_counted_where_the_oldest_alone_are_listed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(bench, KINDS)
    monkeypatch.setattr(module, "MAX_ENTRIES", 2)
    report = told(bench)
    assert (report.total_failed, sum(report.by_error_type.values()), len(report.entries)) == (
        3,
        3,
        2,
    )


def test_projects_are_reported_apart(bench: Bench) -> None:
    failing(bench, KINDS, project_id="toys")
    assert (told(bench).total_failed, told(bench, "toys").total_failed) == (0, 3)


@pytest.mark.parametrize(("hours", "count"), [(90 * 24, 3), (90 * 24 + 1, 0)])
def test_dead_letters_are_kept_for_ninety_days(bench: Bench, hours: float, count: int) -> None:
    failing(bench, KINDS, hours=hours)
    assert told(bench).total_failed == count


def test_those_of_a_run_that_is_rolled_back_are_nobodys_business(bench: Bench) -> None:
    run = failing(bench, KINDS)
    roll_back_run(run.id, database=bench.database, clock=bench.clock, actor="user:1")
    assert bench.work(run).status == "ROLLED_BACK"
    assert told(bench).total_failed == 0


def test_a_retry_reports_the_dead_letters_as_an_event(bench: Bench) -> None:
    failing(bench, KINDS)
    retry_dead_letters("default", database=bench.database, clock=bench.clock, actor="user:9")
    [event] = bench.events("automation.dlq.report")
    assert (event.payload["totalFailed"], event.payload["byErrorType"]) == (
        3,
        {"not_found": 2, "server": 1},
    )
    assert "entries" not in event.payload


def test_they_are_listed_in_the_order_of_their_failing(bench: Bench) -> None:
    run = failing(bench, KINDS)
    first, second, _ = dead_targets(bench, run)
    with bench.database.reading() as session:
        letters = dead_letters(session, "default", now=bench.clock.now(), limit=2)
    assert [int(one.target_id) for one in letters] == [first, second]


def test_what_is_acknowledged_is_not_counted(bench: Bench) -> None:
    run = failing(bench, KINDS)
    chosen = dead_targets(bench, run)[1:]
    world = {"database": bench.database, "clock": bench.clock, "actor": "user:9"}
    assert acknowledge_dead_letters("default", chosen, **world) == 2
    assert told(bench).total_failed == 1
