"""The looks at a run's prices, as they are stored."""

from datetime import timedelta

from automation_pipeline.pricing.models.history import ReconciliationReport, Unverified
from automation_pipeline.pricing.queries.checks import (
    checks_of,
    done_report,
    latest_conclusive_check,
    next_manual_name,
    save_reports,
)
from automation_pipeline.pricing.queries.runs import plan_checks
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.pricing.kept import a_rule, a_run


def found(run_id: int, clock: StandingClock, *, read: int) -> ReconciliationReport:
    return ReconciliationReport(
        run_id=str(run_id),
        total_checked=read,
        mismatches=0,
        timestamp=clock.now(),
        details=(),
        unverified=() if read else (Unverified(target_id="1", reason="it could not be read"),),
    )


def test_the_early_checks_are_planned_from_the_end_of_the_run(
    database: Database, clock: StandingClock
) -> None:
    run_id = a_run(database, a_rule(database, clock), "APPLIED", clock.now())
    with database.transaction() as session:
        plan_checks(session, run_id, clock.now())
        plan_checks(session, run_id, clock.now())
    with database.reading() as session:
        due = [(check.name, check.due_at - clock.now()) for check in checks_of(session, run_id)]
    assert due == [("5m", timedelta(minutes=3)), ("1h", timedelta(hours=1))]


def test_looks_by_hand_are_counted(database: Database, clock: StandingClock) -> None:
    run_id = a_run(database, a_rule(database, clock), "APPLIED", clock.now())
    names = []
    for _ in range(3):
        with database.transaction() as session:
            names.append(next_manual_name(session, run_id))
            save_reports(session, names[-1], [found(run_id, clock, read=1)], clock.now())
    assert names == ["manual-1", "manual-2", "manual-3"]


def test_the_newest_check_that_saw_something_counts(
    database: Database, clock: StandingClock
) -> None:
    run_id = a_run(database, a_rule(database, clock), "APPLIED", clock.now())
    with database.transaction() as session:
        assert (latest_conclusive_check(session, run_id), done_report(session, run_id, "5m")) == (
            None,
            None,
        )
        for name, read in (("5m", 1), ("1h", 2), ("2026-05-05", 0)):
            save_reports(session, name, [found(run_id, clock, read=read)], clock.now())
            clock.pass_time(timedelta(hours=1))
        newest = latest_conclusive_check(session, run_id)
        unread = done_report(session, run_id, "2026-05-05")
    assert newest is not None
    assert (newest.name, newest.total_checked, newest.unverified) == ("1h", 2, 0)
    assert unread is not None
    assert unread.unverified[0].reason == "it could not be read"
