"""Pauses that are over."""

from datetime import timedelta

from automation_pipeline.core.clock import iso
from automation_pipeline.org_jobs.schedules import resume_paused_schedules
from automation_pipeline_tests.org_jobs.bench import Bench
from automation_pipeline_tests.org_jobs.scheduling import log_of

HOUR = timedelta(hours=1)


def a_pause(bench: Bench, org_id: str = "acme", **columns: object) -> str:
    said = {
        "state": "PAUSED",
        "enabled": False,
        "pause_reason": "Holidays",
        "paused_until": bench.now,
    }
    return bench.schedule(org_id, **(said | columns))


def test_those_that_are_over_go_on_from_now(org_bench: Bench) -> None:
    over, lasting = a_pause(org_bench), a_pause(org_bench, paused_until=org_bench.now + HOUR)
    assert resume_paused_schedules(database=org_bench.database, clock=org_bench.clock) == [over]
    row = org_bench.schedule_row(over)
    assert (row.state, row.enabled, iso(row.next_run_at)) == (
        "ACTIVE",
        True,
        "2026-05-05T02:00:00.000Z",
    )
    assert (row.paused_until, row.pause_reason) == (None, None)
    assert org_bench.schedule_row(lasting).state == "PAUSED"
    assert (log_of(org_bench, over), len(org_bench.events("schedule.resumed"))) == (["resume"], 1)
    assert resume_paused_schedules(database=org_bench.database, clock=org_bench.clock) == []


def test_those_of_an_organisation_that_is_suspended_wait_for_it(org_bench: Bench) -> None:
    waits, goes_on = a_pause(org_bench, "globex"), a_pause(org_bench)
    org_bench.organisation("globex", suspended_at=org_bench.now)
    assert resume_paused_schedules(database=org_bench.database, clock=org_bench.clock) == [goes_on]
    org_bench.organisation("globex", suspended_at=None)
    assert resume_paused_schedules(database=org_bench.database, clock=org_bench.clock) == [waits]


def test_one_that_came_to_its_end_or_means_nothing_any_more_does_not_go_on(
    org_bench: Bench,
) -> None:
    ended, broken = (
        a_pause(org_bench, end_at=org_bench.now - HOUR),
        a_pause(org_bench, timezone="Gone/City"),
    )
    deleted = a_pause(org_bench, deleted_at=org_bench.now)
    assert resume_paused_schedules(database=org_bench.database, clock=org_bench.clock) == []
    states = [org_bench.schedule_row(one).state for one in (ended, broken, deleted)]
    assert states == ["COMPLETED", "INVALID_CRON", "PAUSED"]
