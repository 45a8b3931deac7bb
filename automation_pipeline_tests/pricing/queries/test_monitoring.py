"""Health, days, price changes and checks."""

from datetime import timedelta

import pytest
from sqlalchemy import event

from automation_pipeline.pricing.checks import (
    checks_of,
    done_report,
    latest_conclusive_check,
    next_manual_name,
    save_reports,
)
from automation_pipeline.pricing.monitoring import (
    health_of_projects,
    price_changes,
    runs_that_ended,
)
from automation_pipeline.pricing.queries.runs import plan_checks
from automation_pipeline.pricing.rules.monitoring import (
    DayRuns,
    PriceChange,
    PriceChangeFilter,
    ProjectHealth,
    ReconciliationReport,
    Unverified,
)
from automation_pipeline.pricing.runs import roll_back_run
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.history import Transition, record_transitions
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.shop import FakeShop, product_variants
from automation_pipeline_tests.pricing.harness import PricingHarness
from automation_pipeline_tests.pricing.rows import (
    change_run,
    change_targets,
    make_check,
    make_ended_run,
    make_rule,
    make_run,
    make_shop,
)

AN_HOUR, A_SECOND = timedelta(hours=1), timedelta(seconds=1)


def health(database: Database, clock: FakeClock) -> dict[str, ProjectHealth]:
    with database.reading() as session:
        return health_of_projects(session, clock.now())


def test_without_runs_no_project_has_health_figures(database: Database, clock: FakeClock) -> None:
    assert health(database, clock) == {}


def test_health_figures_are_per_project(database: Database, clock: FakeClock) -> None:
    make_ended_run(database, clock, 3, 1, project_id="shoes")
    make_ended_run(database, clock, 2, 0, project_id="shoes")
    make_ended_run(database, clock, 0, 2, project_id="hats")
    assert health(database, clock) == {
        "shoes": ProjectHealth(applied=5, failed=1, dead_letters=1),
        "hats": ProjectHealth(failed=2, dead_letters=2),
    }


@pytest.mark.parametrize(
    ("ended", "counted"), [(AN_HOUR - A_SECOND, 2), (AN_HOUR, 0), (AN_HOUR * 3, 0)]
)
def test_only_runs_that_ended_within_the_last_hour_count(
    database: Database, clock: FakeClock, ended: timedelta, counted: int
) -> None:
    make_ended_run(database, clock, 2, 0, ended=ended)
    assert health(database, clock) == ({"default": ProjectHealth(applied=2)} if counted else {})


def test_a_run_in_progress_does_not_count(database: Database, clock: FakeClock) -> None:
    make_run(database, make_rule(database, clock), "APPLYING", clock.now(), ["APPLIED", "QUEUED"])
    assert health(database, clock) == {}


def test_cancelled_targets_do_not_count_as_failures(database: Database, clock: FakeClock) -> None:
    run_id = make_ended_run(database, clock, 2, 3)
    change_targets(database, run_id, first=2, error_type="cancelled")
    assert health(database, clock)["default"] == ProjectHealth(applied=2, failed=1, dead_letters=3)


def test_targets_rolled_back_later_count_as_applied(database: Database, clock: FakeClock) -> None:
    targets = ["ROLLED_BACK"] * 5 + ["APPLIED"]
    make_run(
        database, make_rule(database, clock), "APPLIED", clock.now() - timedelta(minutes=5), targets
    )
    assert health(database, clock) == {"default": ProjectHealth(applied=6)}


def test_only_the_last_cycle_of_a_retried_run_counts(database: Database, clock: FakeClock) -> None:
    run_id = make_ended_run(database, clock, 5, 3, retry_cycle=1)
    change_targets(database, run_id, last_attempt=clock.now() - timedelta(days=1))
    change_targets(database, run_id, first=1, last_attempt=clock.now() - timedelta(minutes=31))
    with database.transaction() as session:
        started = (clock.now() - timedelta(days=1, minutes=1), clock.now() - timedelta(minutes=32))
        moves = [
            Transition("rule run", str(run_id), "QUEUED", "APPLYING", "worker", at)
            for at in started
        ]
        record_transitions(session, moves)
    assert health(database, clock)["default"] == ProjectHealth(failed=1, dead_letters=3)


@pytest.mark.parametrize(
    ("values", "left"),
    [
        ({}, 2),
        ({"last_attempt": timedelta(days=90)}, 2),
        ({"last_attempt": timedelta(days=90, seconds=1)}, 1),
        ({"acknowledged_at": timedelta(0)}, 1),
    ],
)
def test_dead_letters_are_recent_failures_without_acknowledgement(
    database: Database, clock: FakeClock, values: dict[str, timedelta], left: int
) -> None:
    run_id = make_ended_run(database, clock, 0, 2, ended=timedelta(days=2))
    if values:
        change_targets(
            database, run_id, first=1, **{name: clock.now() - ago for name, ago in values.items()}
        )
    assert health(database, clock) == {"default": ProjectHealth(dead_letters=left)}


def test_a_run_that_was_rolled_back_has_no_dead_letters(
    database: Database, clock: FakeClock
) -> None:
    make_ended_run(database, clock, 0, 2, ended=timedelta(days=2), status="ROLLED_BACK")
    assert health(database, clock) == {}
    make_ended_run(database, clock, 0, 1, ended=timedelta(days=2))
    assert health(database, clock) == {"default": ProjectHealth(dead_letters=1)}


def test_rate_limits_count_for_projects_with_a_run_in_the_shop(
    database: Database, clock: FakeClock
) -> None:
    make_shop(database, 1, 100, 200, 400)  # the last one is outside the five minutes
    make_shop(database, 1, 1, shop="other.example")
    make_run(
        database, make_rule(database, clock, project_id="busy"), "APPLYING", clock.now(), ["QUEUED"]
    )
    make_run(
        database,
        make_rule(database, clock, project_id="planning"),
        "PREVIEW",
        clock.now(),
        wish="apply",
    )
    make_run(database, make_rule(database, clock, project_id="looking"), "PREVIEW", clock.now())
    make_run(
        database,
        make_rule(database, clock, project_id="elsewhere"),
        "QUEUED",
        clock.now(),
        shop="quiet.example",
    )
    for project, minutes in (("done", 4), ("earlier", 6)):
        at = clock.now() - timedelta(minutes=minutes)
        make_run(database, make_rule(database, clock, project_id=project), "APPLIED", at)
    assert health(database, clock) == dict.fromkeys(
        ("busy", "done", "planning"), ProjectHealth(rate_limits=3)
    )


def test_the_number_of_health_queries_is_constant(database: Database, clock: FakeClock) -> None:
    executed: list[str] = []
    event.listen(database.engine, "before_cursor_execute", lambda *given: executed.append(given[2]))
    health(database, clock)
    first_count = len(executed)
    for project in ("a", "b", "c", "d"):
        make_ended_run(database, clock, 2, 2, project_id=project)
    make_shop(database, 1)
    executed.clear()
    health(database, clock)
    assert len(executed) == first_count <= 6


SPAN = timedelta(hours=1)


def runs_of_the_last_hour(database: Database, clock: FakeClock) -> DayRuns:
    """The runs that ended in the last hour."""
    with database.reading() as session:
        return runs_that_ended(session, clock.now() - SPAN, clock.now())


def test_a_day_without_runs_is_empty(database: Database, clock: FakeClock) -> None:
    assert runs_of_the_last_hour(database, clock) == DayRuns([], 0, [], [])


def test_a_day_counts_runs_that_ended_from_its_start_up_to_its_end(
    database: Database, clock: FakeClock
) -> None:
    for ended in (SPAN + timedelta(seconds=1), SPAN, timedelta(minutes=1), timedelta(0)):
        make_ended_run(database, clock, 1, ended=ended)
    make_run(
        database,
        make_rule(database, clock),
        "APPLYING",
        clock.now() - timedelta(minutes=5),
        ["QUEUED"],
    )
    assert [run.id for run in runs_of_the_last_hour(database, clock).runs] == [2, 3]


def test_day_counts_exclude_cancelled_and_acknowledged_targets(
    database: Database, clock: FakeClock
) -> None:
    run_id = make_ended_run(database, clock, 3, 4)
    change_targets(database, run_id, first=1, error_type="cancelled")
    change_targets(database, run_id, first=2, acknowledged_at=clock.now())
    rolled_back = make_ended_run(database, clock, 0, 1, status="ROLLED_BACK")
    day = runs_of_the_last_hour(database, clock)
    counts = [(run.id, run.targets.succeeded, run.targets.not_cancelled) for run in day.runs]
    assert counts == [(run_id, 3, 3), (rolled_back, 0, 1)]
    assert (day.applied, day.failed, day.dead_letters, str(day.success_rate)[:4]) == (
        3,
        4,
        2,
        "0.42",
    )
    assert (day.runs[0].rule_name, day.runs[0].apply_ms) == ("Summer sale", 120_000)


def test_a_run_is_mismatched_only_if_its_latest_check_is_critical(
    database: Database, clock: FakeClock
) -> None:
    now = clock.now()
    repaired, changed, slightly = (make_ended_run(database, clock, 1) for _ in range(3))
    make_check(database, repaired, "5m", now, "critical", 1)
    make_check(database, repaired, "1h", now)
    make_check(database, changed, "5m", now)
    make_check(database, changed, "1h", now, "critical", 1)
    make_check(database, slightly, "5m", now, "warning", 1)
    assert runs_of_the_last_hour(database, clock).mismatched == [changed]


def test_inconclusive_checks_are_ignored_for_the_mismatch_state(
    database: Database, clock: FakeClock
) -> None:
    now, earlier = clock.now(), clock.now() - timedelta(minutes=10)
    early, unread, without, back = (make_ended_run(database, clock, 1) for _ in range(4))
    make_check(database, early, "1h", now, "critical", 1)
    make_check(database, early, "manual-1", earlier)
    make_check(database, unread, "5m", earlier, "critical", 1)
    make_check(database, unread, "1h", now, total_checked=0, unverified=1)
    make_check(database, without, "5m", earlier, "critical", 1)
    make_check(database, without, "2026-05-04", now, total_checked=0)
    make_check(database, back, "5m", earlier, "critical", 1)
    change_run(database, back, status="ROLLED_BACK")
    assert runs_of_the_last_hour(database, clock).mismatched == [early, unread]


def test_a_day_names_the_run_with_a_broken_invariant(database: Database, clock: FakeClock) -> None:
    make_ended_run(database, clock, 2, 1, status="APPLIED")
    make_ended_run(database, clock, 2, 0)
    assert runs_of_the_last_hour(database, clock).broken == [
        "Run 1 is APPLIED and has 1 failed targets."
    ]


def test_the_number_of_queries_per_day_is_constant(database: Database, clock: FakeClock) -> None:
    executed: list[str] = []
    event.listen(database.engine, "before_cursor_execute", lambda *given: executed.append(given[2]))
    make_ended_run(database, clock, 1)
    executed.clear()
    runs_of_the_last_hour(database, clock)
    first_count = len(executed)
    for _ in range(5):
        make_ended_run(database, clock, 2, 2)
    executed.clear()
    runs_of_the_last_hour(database, clock)
    assert len(executed) == first_count <= 5


@pytest.fixture
def harness(database: Database, clock: FakeClock) -> PricingHarness:
    return PricingHarness(
        database, clock, FakeShop(*product_variants(3)), {"longest_pause_seconds": 0.0}
    )


def find(
    harness: PricingHarness, *, limit: int = 100, after_id: int = 0, **chosen: object
) -> list[PriceChange]:
    with harness.database.reading() as session:
        return price_changes(session, PriceChangeFilter(**chosen), limit, after_id)


def test_changes_are_found_by_run_variant_and_project(harness: PricingHarness) -> None:
    first = harness.work(harness.queued_run(harness.rule(project_id="toys")))
    second = harness.work(harness.queued_run(harness.rule(selector={"sku": "SKU-1-1"})))
    roll_back_run(second.id, database=harness.database, clock=harness.clock, actor="user:1")
    harness.work(second)
    assert [
        (one.kind, one.from_amount, one.to_amount) for one in find(harness, variant_id="101")
    ] == [
        ("apply", 1000, 900),
        ("apply", 900, 810),
        ("rollback", 810, 900),
    ]
    assert len(find(harness, run_id=first.id)) == 3
    assert {one.rule_run_id for one in find(harness, project_id="toys")} == {first.id}
    [last] = find(harness)[-1:]
    assert len(find(harness)) == 5
    assert last.source == f"rule:{second.rule_id}"


def test_price_changes_are_paged_after_an_id(harness: PricingHarness) -> None:
    harness.work(harness.queued_run())
    page = find(harness, limit=2)
    assert len(page) == 2
    assert len(find(harness, limit=2, after_id=page[-1].id)) == 1


def report(run_id: int, clock: FakeClock, *, read: int) -> ReconciliationReport:
    return ReconciliationReport(
        run_id=str(run_id),
        total_checked=read,
        mismatches=0,
        timestamp=clock.now(),
        details=(),
        unverified=() if read else (Unverified(target_id="1", reason="it could not be read"),),
    )


def test_early_checks_are_due_relative_to_the_end_of_the_run(
    database: Database, clock: FakeClock
) -> None:
    run_id = make_run(database, make_rule(database, clock), "APPLIED", clock.now())
    with database.transaction() as session:
        plan_checks(session, run_id, clock.now())
        plan_checks(session, run_id, clock.now())
    with database.reading() as session:
        due = [(check.name, check.due_at - clock.now()) for check in checks_of(session, run_id)]
    assert due == [("5m", timedelta(minutes=3)), ("1h", timedelta(hours=1))]


def test_manual_checks_are_numbered(database: Database, clock: FakeClock) -> None:
    run_id = make_run(database, make_rule(database, clock), "APPLIED", clock.now())
    names = []
    for _ in range(3):
        with database.transaction() as session:
            names.append(next_manual_name(session, run_id))
            save_reports(session, names[-1], [report(run_id, clock, read=1)], clock.now())
    assert names == ["manual-1", "manual-2", "manual-3"]


def test_the_latest_conclusive_check_read_at_least_one_price(
    database: Database, clock: FakeClock
) -> None:
    run_id = make_run(database, make_rule(database, clock), "APPLIED", clock.now())
    with database.transaction() as session:
        assert (latest_conclusive_check(session, run_id), done_report(session, run_id, "5m")) == (
            None,
            None,
        )
        for name, read in (("5m", 1), ("1h", 2), ("2026-05-05", 0)):
            save_reports(session, name, [report(run_id, clock, read=read)], clock.now())
            clock.advance(timedelta(hours=1))
        newest = latest_conclusive_check(session, run_id)
        unread = done_report(session, run_id, "2026-05-05")
    assert newest is not None
    assert (newest.name, newest.total_checked, newest.unverified) == ("1h", 2, 0)
    assert unread is not None
    assert unread.unverified[0].reason == "it could not be read"
