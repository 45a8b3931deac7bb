"""The runs of a day: those that ended in it, with what became of their targets, in few queries."""

from datetime import timedelta

from sqlalchemy import event

from automation_pipeline.pricing.models.history import DayRuns
from automation_pipeline.pricing.queries.monitoring import runs_that_ended
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.pricing.ended import a_check, an_ended_run, change_targets
from automation_pipeline_tests.pricing.kept import a_rule, a_run, change_run

SPAN = timedelta(hours=1)


def the_day(database: Database, clock: StandingClock) -> DayRuns:
    """The hour before now."""
    with database.reading() as session:
        return runs_that_ended(session, clock.now() - SPAN, clock.now())


def test_a_day_without_runs_is_empty(database: Database, clock: StandingClock) -> None:
    assert the_day(database, clock) == DayRuns([], 0, [], [])


def test_only_what_ended_in_the_span_counts_its_beginning_included(
    database: Database, clock: StandingClock
) -> None:
    for ended in (SPAN + timedelta(seconds=1), SPAN, timedelta(minutes=1), timedelta(0)):
        an_ended_run(database, clock, 1, ended=ended)
    a_run(
        database,
        a_rule(database, clock),
        "APPLYING",
        clock.now() - timedelta(minutes=5),
        ["QUEUED"],
    )
    assert [run.id for run in the_day(database, clock).runs] == [2, 3]


def test_targets_are_counted_as_they_were_tried(database: Database, clock: StandingClock) -> None:
    run_id = an_ended_run(database, clock, 3, 4)
    change_targets(database, run_id, first=1, error_type="cancelled")
    change_targets(database, run_id, first=2, acknowledged_at=clock.now())
    taken_back = an_ended_run(database, clock, 0, 1, status="ROLLED_BACK")
    day = the_day(database, clock)
    counts = [(run.id, run.targets.succeeded, run.targets.not_cancelled) for run in day.runs]
    assert counts == [(run_id, 3, 3), (taken_back, 0, 1)]
    assert (day.applied, day.failed, day.dead_letters, str(day.success_rate)[:4]) == (
        3,
        4,
        2,
        "0.42",
    )
    assert (day.runs[0].rule_name, day.runs[0].apply_ms) == ("Summer sale", 120_000)


def test_a_run_is_mismatched_as_long_as_its_last_check_says_so(
    database: Database, clock: StandingClock
) -> None:
    now = clock.now()
    mended, changed, slightly = (an_ended_run(database, clock, 1) for _ in range(3))
    a_check(database, mended, "5m", now, "critical", 1)
    a_check(database, mended, "1h", now)
    a_check(database, changed, "5m", now)
    a_check(database, changed, "1h", now, "critical", 1)
    a_check(database, slightly, "5m", now, "warning", 1)
    assert the_day(database, clock).mismatched == [changed]


def test_the_last_check_is_the_one_that_was_made_last_and_could_say_something(
    database: Database, clock: StandingClock
) -> None:
    now, earlier = clock.now(), clock.now() - timedelta(minutes=10)
    early, unread, without, back = (an_ended_run(database, clock, 1) for _ in range(4))
    a_check(database, early, "1h", now, "critical", 1)
    a_check(database, early, "manual-1", earlier)
    a_check(database, unread, "5m", earlier, "critical", 1)
    a_check(database, unread, "1h", now, total_checked=0, unverified=1)
    a_check(database, without, "5m", earlier, "critical", 1)
    a_check(database, without, "2026-05-04", now, total_checked=0)
    a_check(database, back, "5m", earlier, "critical", 1)
    change_run(database, back, status="ROLLED_BACK")
    assert the_day(database, clock).mismatched == [early, unread]


def test_a_broken_promise_is_said(database: Database, clock: StandingClock) -> None:
    an_ended_run(database, clock, 2, 1, status="APPLIED")
    an_ended_run(database, clock, 2, 0)
    assert the_day(database, clock).broken == ["Run 1 is APPLIED and has 1 failed targets."]


def test_the_number_of_queries_does_not_depend_on_how_many_runs_there_are(
    database: Database, clock: StandingClock
) -> None:
    asked: list[str] = []
    event.listen(database.engine, "before_cursor_execute", lambda *given: asked.append(given[2]))
    an_ended_run(database, clock, 1)
    asked.clear()
    the_day(database, clock)
    few = len(asked)
    for _ in range(5):
        an_ended_run(database, clock, 2, 2)
    asked.clear()
    the_day(database, clock)
    assert len(asked) == few <= 5
