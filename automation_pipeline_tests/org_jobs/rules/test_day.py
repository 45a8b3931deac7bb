"""A day of schedules and jobs: summed up over organisations, and judged."""

from automation_pipeline.org_jobs.models.states import FireOutcome, OrgJobsRunState
from automation_pipeline.org_jobs.rules.health import DAY_CHECKS, Day, DayFires, DayJobs, judge_day
from automation_pipeline_tests.tables import every_case


def fires(
    org_id: str, outcome: str, count: int, *, reason: str | None = None, latency: float = 0.0
) -> DayFires:
    timed = count if outcome == "DISPATCHED" else 0
    return DayFires(
        org_id=org_id,
        outcome=FireOutcome(outcome),
        skip_reason=reason,
        count=count,
        timed=timed,
        latency_seconds=latency,
    )


DAY = Day(
    fires=[
        fires("acme", "DISPATCHED", 3, latency=2.0),
        fires("globex", "DISPATCHED", 1, latency=10.0),
        fires("acme", "SKIPPED", 2, reason="overlap"),
        fires("globex", "SKIPPED", 4, reason="misfire"),
    ],
    jobs=[
        DayJobs(org_id="initech", status=OrgJobsRunState.SUCCESS, type="RCON", count=2),
        DayJobs(org_id="acme", status=OrgJobsRunState.FAILED, type="RCON", count=1),
    ],
)


def test_a_day_is_summed_up() -> None:
    assert DAY.by_outcome == {"DISPATCHED": 4, "SKIPPED": 6}
    assert DAY.by_skip_reason == {"overlap": 2, "misfire": 4}
    assert DAY.by_state == {"success": 2, "failed": 1}
    assert DAY.mean_latency_seconds == 4.0
    assert DAY.organisations == ["acme", "globex", "initech"]
    assert Day().mean_latency_seconds is None


@every_case(
    ("day", "failing"),
    [
        (Day(), set()),
        (DAY, set()),
        (Day(fires=[fires("acme", "FAILED", 1)]), {"no_fire_failed"}),
        (Day(oldest_due_seconds=300), set()),
        (Day(oldest_due_seconds=301), {"nothing_left_due"}),
        (Day(unreadable=["s1"]), {"no_invalid_cron"}),
    ],
)
def test_a_day_is_judged(day: Day, failing: set[str]) -> None:
    found = judge_day(day)
    assert [one.check for one in found] == list(DAY_CHECKS)
    assert {one.check for one in found if not one.passed} == failing


def test_of_many_schedules_that_cannot_be_read_a_few_are_named() -> None:
    [*_, cron] = judge_day(Day(unreadable=[f"s{number}" for number in range(7)]))
    assert cron.says == "Never due until somebody corrects them: s0, s1, s2, s3, s4, and 2 more."
