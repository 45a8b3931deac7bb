"""Alert conditions and the daily checks."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from automation_pipeline.core.alerts import AlertCondition, AlertSeverity
from automation_pipeline.core.scheduling.timing import TimingFields
from automation_pipeline.org_jobs.models.jobs import FireOutcome, OrgJobsRunState
from automation_pipeline.org_jobs.rules.health import (
    DAY_CHECKS,
    Day,
    DayFires,
    DayJobs,
    batch_alert,
    failed_jobs_alert,
    failing_alerts,
    host_alerts,
    judge_day,
    late_alerts,
    silent_alerts,
    unreadable_alert,
)
from automation_pipeline_tests.cases import every_case

NOW = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
WARNING, CRITICAL = AlertSeverity.WARNING, AlertSeverity.CRITICAL


def about(alerts: Iterable[AlertCondition]) -> list[tuple[str, str, str | None, str]]:
    return [(one.name, one.severity, one.org_id, one.subject) for one in alerts]


@every_case(("seconds", "is_raised"), [(0, False), (300, False), (301, True)])
def test_an_overdue_schedule_raises_an_alert_about_the_scheduler(
    seconds: int, is_raised: bool
) -> None:
    found = about(late_alerts(NOW - seconds * SECOND, NOW))
    assert found == ([("oldest_due", "critical", None, "scheduler")] if is_raised else [])
    assert list(late_alerts(None, NOW)) == []


def test_durations_in_messages_are_in_seconds_or_minutes() -> None:
    [seconds], [minutes] = (late_alerts(NOW - length * SECOND, NOW) for length in (599, 600))
    assert seconds.message == "A schedule has been due for 599 s and was not dispatched."
    assert "due for 10 min and" in minutes.message


@every_case(
    ("in_a_row", "is_paused", "severity", "words"),
    [
        (0, False, None, ""),
        (2, False, None, ""),
        (3, False, "warning", "Schedule 'Nightly' has failed 3 times in a row."),
        (9, False, "warning", "Schedule 'Nightly' has failed 9 times in a row."),
        (1, True, "critical", "Schedule 'Nightly' has failed once and is paused."),
    ],
)
def test_consecutive_failures_of_a_schedule_raise_an_alert(
    in_a_row: int, is_paused: bool, severity: str | None, words: str
) -> None:
    found = list(failing_alerts("acme", "s1", "Nightly", in_a_row, is_paused, NOW))
    expected = [("schedule_failed", severity, "acme", "s1")] if severity else []
    assert about(found) == expected
    assert [one.message for one in found] == ([words] if severity else [])


def test_messages_about_single_events() -> None:
    found = [
        unreadable_alert("acme", "s1", "Nightly", "0 2 30 2 *", NOW),
        failed_jobs_alert("acme", "s2", "RCON", 1, 4, NOW, "No."),
        failed_jobs_alert("acme", None, "RCON", 3, 9, NOW),
        batch_alert("acme", 5, "s3", NOW),
    ]
    assert about(found) == [
        ("invalid_cron", "critical", "acme", "s1"),
        ("job_run_failed", "warning", "acme", "s2"),
        ("job_run_failed", "warning", "acme", "acme:RCON"),
        ("batch_failed", "warning", "acme", "5"),
    ]
    assert (
        found[1].message
        == "A job has failed after the last attempt (RCON); the newest is job 4: No."
    )
    assert (
        found[2].message == "3 jobs have failed after the last attempt (RCON); the newest is job 9."
    )
    assert {one.happened_at for one in found} == {NOW}


@every_case(
    ("minutes", "changes", "names"),
    [
        (3, {"waiting": 1}, []),
        (3.1, {"waiting": 1}, ["heartbeat_missed"]),
        (3.1, {"at_work": 1}, ["heartbeat_missed"]),
        (3.1, {}, []),
        (15, {}, []),
        (15.1, {}, ["server_down"]),
        (15.1, {"at_work": 2}, ["heartbeat_missed", "server_down"]),
        (15.1, {"has_servers": False}, []),
        (15.1, {"was_seen": False, "waiting": 1}, ["heartbeat_missed"]),
    ],
)
def test_a_silent_host_raises_an_alert(
    minutes: float, changes: dict[str, int], names: list[str]
) -> None:
    facts = {"was_seen": True, "waiting": 0, "at_work": 0, "has_servers": True} | changes
    since = NOW - minutes * MINUTE
    found = list(host_alerts("acme", 7, "h1", NOW, silent_since=since, **facts))  # type: ignore[arg-type]
    assert [(one.name, one.subject) for one in found] == [(name, "7") for name in names]
    downs = [one.happened_at for one in found if one.name == "server_down"]
    assert downs == [since + 15 * MINUTE] * len(downs)


def silent(cron: str, since: datetime, **timing: object) -> list[tuple[str, str, str | None, str]]:
    fields = TimingFields(seed="", cron_expression=cron, timezone="UTC", **timing)  # type: ignore[arg-type]
    return about(silent_alerts("acme", "s1", "Nightly", fields, since, NOW))


@every_case(
    ("cron", "since", "is_raised"),
    [
        ("*/30 * * * *", NOW - 60 * MINUTE, False),  # the second is due just now
        ("*/30 * * * *", NOW - 66 * MINUTE, True),
        ("* * * * *", NOW - 7 * MINUTE, False),
        ("* * * * *", NOW - 8 * MINUTE, True),
        ("0 2 * * *", NOW - timedelta(hours=32), False),  # yesterday's, at 02:00
        ("0 2 * * *", NOW - timedelta(hours=33), True),
        ("0 0 29 2 *", NOW - timedelta(days=300), False),
        ("no cron", NOW - timedelta(days=9), False),
    ],
)
def test_a_schedule_is_silent_when_two_due_times_have_passed(
    cron: str, since: datetime, is_raised: bool
) -> None:
    expected = [("silent_schedule", "critical", "acme", "s1")] if is_raised else []
    assert silent(cron, since) == expected


def test_a_schedule_past_its_end_may_be_silent() -> None:
    yesterday = NOW - timedelta(days=1)
    assert silent("* * * * *", yesterday, end_at=yesterday) == []


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


def day(**facts: Any) -> Day:
    return Day(**({"fires": (), "jobs": (), "oldest_due_seconds": 0.0, "unreadable": ()} | facts))


DAY = day(
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


def test_the_summary_of_a_day() -> None:
    assert DAY.by_outcome == {"DISPATCHED": 4, "SKIPPED": 6}
    assert DAY.by_skip_reason == {"overlap": 2, "misfire": 4}
    assert DAY.by_state == {"success": 2, "failed": 1}
    assert DAY.mean_latency_seconds == 4.0
    assert DAY.organisations == ["acme", "globex", "initech"]
    assert day().mean_latency_seconds is None


@every_case(
    ("day", "failing"),
    [
        (day(), set()),
        (DAY, set()),
        (day(fires=[fires("acme", "FAILED", 1)]), {"no_fire_failed"}),
        (day(oldest_due_seconds=300), set()),
        (day(oldest_due_seconds=301), {"nothing_left_due"}),
        (day(unreadable=["s1"]), {"no_invalid_cron"}),
    ],
)
def test_the_checks_of_a_day(day: Day, failing: set[str]) -> None:
    found = judge_day(day)
    assert [one.check for one in found] == list(DAY_CHECKS)
    assert {one.check for one in found if not one.passed} == failing


def test_the_check_names_a_few_of_many_invalid_schedules() -> None:
    [*_, cron] = judge_day(day(unreadable=[f"s{number}" for number in range(7)]))
    assert cron.message == "Never due until they are corrected: s0, s1, s2, s3, s4, and 2 more."
