"""Somebody is called strictly beyond each boundary, once for what happened, and again for what
lasts."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.core.scheduling.timing import TimingFields
from automation_pipeline.core.webhooks import AlertSeverity
from automation_pipeline.org_jobs.rules.health import (
    COOLDOWN,
    FailedJobs,
    FailingSchedule,
    LastRaised,
    OrgAlertCondition,
    OrgHealth,
    OrgJobsAlertName,
    QuietHost,
    SpoiltBatch,
    UnreadableSchedule,
    WatchedSchedule,
    due_alerts,
    is_to_raise,
)
from automation_pipeline_tests.tables import every_case

NOW = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
HOST = QuietHost(
    org_id="acme",
    id=7,
    name="h1",
    silent_since=NOW,
    was_seen=True,
    waiting=0,
    at_work=0,
    has_servers=True,
)
WARNING, CRITICAL = AlertSeverity.WARNING, AlertSeverity.CRITICAL


def told(health: OrgHealth) -> list[tuple[str, str, str | None, str]]:
    return [(one.name, one.severity, one.org_id, one.subject) for one in due_alerts(health, NOW)]


def test_where_all_is_well_nobody_is_called() -> None:
    assert due_alerts(OrgHealth(), NOW) == []


@every_case(("seconds", "is_told"), [(0, False), (300, False), (301, True)])
def test_what_is_due_and_left_alone_is_about_the_scheduler_itself(
    seconds: int, is_told: bool
) -> None:
    found = told(OrgHealth(oldest_due_at=NOW - seconds * SECOND))
    assert found == ([("oldest_due", "critical", None, "scheduler")] if is_told else [])


@every_case(
    ("in_a_row", "is_paused", "severity"),
    [
        (0, False, None),
        (2, False, None),
        (3, False, "warning"),
        (9, False, "warning"),
        (2, True, "critical"),
    ],
)
def test_a_schedule_that_fails_in_a_row_is_told(
    in_a_row: int, is_paused: bool, severity: str | None
) -> None:
    one = FailingSchedule(
        org_id="acme",
        id="s1",
        name="Nightly",
        in_a_row=in_a_row,
        is_paused_for_it=is_paused,
        last_at=NOW,
    )
    assert told(OrgHealth(failing=[one])) == (
        [("schedule_failed", severity, "acme", "s1")] if severity else []
    )


def test_what_happened_once_is_told_with_its_words() -> None:
    health = OrgHealth(
        unreadable=[
            UnreadableSchedule(
                org_id="acme", id="s1", name="Nightly", cron_expression="0 2 30 2 *", since=NOW
            )
        ],
        failed_jobs=[
            FailedJobs(
                org_id="acme",
                schedule_id="s2",
                type="RCON",
                count=1,
                last_id=4,
                last_at=NOW,
                last_error="No.",
            ),
            FailedJobs(
                org_id="acme", schedule_id=None, type="RCON", count=3, last_id=9, last_at=NOW
            ),
        ],
        batches=[SpoiltBatch(org_id="acme", id=5, schedule_id="s3", finished_at=NOW)],
    )
    found = due_alerts(health, NOW)
    assert [(one.name, one.severity, one.subject) for one in found] == [
        ("invalid_cron", "critical", "s1"),
        ("job_run_failed", "warning", "s2"),
        ("job_run_failed", "warning", "acme:RCON"),
        ("batch_failed", "warning", "5"),
    ]
    assert found[1].message == "A job has failed for good (RCON), the last is job 4: No."
    assert found[2].message == "3 jobs have failed for good (RCON), the last is job 9."
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
def test_a_silent_host_is_told(
    minutes: float, changes: dict[str, object], names: list[str]
) -> None:
    host = replace(HOST, silent_since=NOW - minutes * MINUTE, **changes)
    assert [name for name, *_ in told(OrgHealth(quiet_hosts=[host]))] == names


def watched(cron: str, since: datetime, **timing: object) -> OrgHealth:
    fields = TimingFields(seed="", cron_expression=cron, timezone="UTC", **timing)  # type: ignore[arg-type]
    return OrgHealth(
        watched=[
            WatchedSchedule(org_id="acme", id="s1", name="Nightly", timing=fields, since=since)
        ]
    )


@every_case(
    ("cron", "since", "is_told"),
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
def test_a_schedule_is_silent_when_two_due_times_have_gone_by(
    cron: str, since: datetime, is_told: bool
) -> None:
    assert told(watched(cron, since)) == (
        [("silent_schedule", "critical", "acme", "s1")] if is_told else []
    )


def test_a_schedule_whose_dates_are_over_may_be_silent() -> None:
    assert told(watched("* * * * *", NOW - timedelta(days=1), end_at=NOW - timedelta(days=1))) == []


def an_alert(
    severity: AlertSeverity = WARNING, happened_at: datetime | None = None
) -> OrgAlertCondition:
    name = OrgJobsAlertName.SCHEDULE_FAILED
    return OrgAlertCondition(
        org_id="acme",
        name=name,
        severity=severity,
        subject="s1",
        message="!",
        happened_at=happened_at,
    )


@every_case(
    ("alert", "last", "is_raised"),
    [
        (an_alert(), None, True),
        (an_alert(), LastRaised(WARNING, NOW - COOLDOWN + SECOND), False),
        (an_alert(), LastRaised(WARNING, NOW - COOLDOWN), True),
        (an_alert(CRITICAL), LastRaised(WARNING, NOW - SECOND), True),
        (an_alert(CRITICAL), LastRaised(CRITICAL, NOW - SECOND), False),
        (an_alert(happened_at=NOW - COOLDOWN), LastRaised(WARNING, NOW - COOLDOWN), False),
        (an_alert(happened_at=NOW - SECOND), LastRaised(WARNING, NOW - COOLDOWN), True),
        (an_alert(happened_at=NOW - SECOND), LastRaised(WARNING, NOW - 2 * SECOND), False),
        (an_alert(CRITICAL, NOW - SECOND), LastRaised(WARNING, NOW - 2 * SECOND), True),
    ],
)
def test_it_is_raised_once_until_its_cooldown_is_over(
    alert: OrgAlertCondition, last: LastRaised | None, is_raised: bool
) -> None:
    assert is_to_raise(alert, last, NOW) is is_raised


@given(st.lists(st.integers(0, 3600), min_size=1, max_size=60))
def test_two_of_the_same_are_never_raised_within_a_cooldown(looks: list[int]) -> None:
    raised: list[datetime] = []
    for seconds in sorted(looks):
        now = NOW + seconds * SECOND
        if is_to_raise(an_alert(), LastRaised(WARNING, raised[-1]) if raised else None, now):
            raised.append(now)
    assert all(later - earlier >= COOLDOWN for earlier, later in pairwise(raised))
