"""Conditions for raising an alert, and the limits of its messages."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.core.alerts import (
    Alert,
    AlertCondition,
    AlertReceiver,
    AlertSeverity,
    LastRaised,
    should_raise,
)
from automation_pipeline_tests.cases import every_case

NOW = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)
SECOND, COOLDOWN = timedelta(seconds=1), timedelta(minutes=15)
WARNING, CRITICAL = AlertSeverity.WARNING, AlertSeverity.CRITICAL


def condition(
    severity: AlertSeverity = WARNING, happened_at: datetime | None = None
) -> AlertCondition:
    return AlertCondition(
        name="queue_full", severity=severity, subject="q1", message="!", happened_at=happened_at
    )


@every_case(
    ("found", "previous", "is_raised"),
    [
        (condition(), None, True),
        (condition(), LastRaised(WARNING, NOW - COOLDOWN + SECOND), False),
        (condition(), LastRaised(WARNING, NOW - COOLDOWN), True),
        (condition(), LastRaised(CRITICAL, NOW - SECOND), False),
        (condition(), LastRaised(CRITICAL, NOW - COOLDOWN), True),
        (condition(CRITICAL), LastRaised(WARNING, NOW - SECOND), True),
        (condition(CRITICAL), LastRaised(CRITICAL, NOW - SECOND), False),
        (condition(CRITICAL), LastRaised(CRITICAL, NOW - COOLDOWN), True),
        (condition(happened_at=NOW - 9 * COOLDOWN), None, True),
        (condition(happened_at=NOW - COOLDOWN), LastRaised(WARNING, NOW - COOLDOWN), False),
        (condition(happened_at=NOW - SECOND), LastRaised(WARNING, NOW - COOLDOWN), True),
        (condition(happened_at=NOW - SECOND), LastRaised(WARNING, NOW - 2 * SECOND), False),
        (condition(CRITICAL, NOW - SECOND), LastRaised(WARNING, NOW - 2 * SECOND), True),
        (condition(CRITICAL, NOW - SECOND), LastRaised(WARNING, NOW - SECOND), False),
    ],
)
def test_an_alert_is_raised_once_per_event_and_cooldown_or_on_escalation(
    found: AlertCondition, previous: LastRaised | None, is_raised: bool
) -> None:
    assert should_raise(found, previous, NOW, COOLDOWN) is is_raised


@given(st.lists(st.integers(0, 3600), min_size=1, max_size=60))
def test_a_persistent_condition_is_raised_once_per_cooldown(checks: list[int]) -> None:
    raised: list[datetime] = []
    for seconds in sorted(checks):
        now = NOW + seconds * SECOND
        previous = LastRaised(WARNING, raised[-1]) if raised else None
        if should_raise(condition(), previous, now, COOLDOWN):
            raised.append(now)
    assert all(later - earlier >= COOLDOWN for earlier, later in pairwise(raised))


def alert(message: str, **about: str | None) -> Alert:
    return Alert(
        id=1,
        attempt=1,
        event="org_jobs.alert",
        name="oldest_due",
        severity=WARNING,
        message=message,
        raised_at=NOW,
        about=about,
    )


def test_long_texts_are_cut_to_the_limits_of_pagerduty() -> None:
    receiver = AlertReceiver("https://hooks.test", "pagerduty", "key-1")
    message = receiver.message_of(alert("m" * 2000, subject="s" * 300))
    payload = message["payload"]
    assert isinstance(payload, dict)
    assert payload["summary"] == "m" * 1024
    assert message["dedup_key"] == f"org_jobs.alert:oldest_due:{'s' * 229}"


def test_fields_that_are_not_set_are_omitted_from_alert_messages() -> None:
    late = alert('It is <late> & "new".', subject="scheduler", orgId=None)
    about = {"subject": "scheduler", "orgId": None}
    assert AlertReceiver("https://hooks.test").message_of(late) == {
        "event": "org_jobs.alert",
        "alert": {
            "id": "1",
            "name": "oldest_due",
            "severity": "warning",
            "message": 'It is <late> & "new".',
            "raisedAt": "2026-05-04T10:00:00.000Z",
            **about,
        },
    }
    assert AlertReceiver("https://hooks.test", "pagerduty", "key-1").message_of(late) == {
        "routing_key": "key-1",
        "event_action": "trigger",
        "dedup_key": "org_jobs.alert:oldest_due:scheduler",
        "payload": {
            "summary": 'It is <late> & "new".',
            "source": "automation-pipeline",
            "severity": "warning",
            "timestamp": "2026-05-04T10:00:00.000Z",
            "group": "org_jobs.alert",
            "class": "oldest_due",
            "custom_details": {"id": "1", **about},
        },
    }
    assert AlertReceiver("https://hooks.test", "slack").message_of(late) == {
        "text": 'WARNING: oldest_due (org_jobs.alert)\nIt is &lt;late&gt; &amp; "new".\nsubject: scheduler\n'
        "raisedAt: 2026-05-04T10:00:00.000Z",
        "mrkdwn": False,
        "unfurl_links": False,
        "unfurl_media": False,
    }


def test_the_repr_of_a_receiver_does_not_contain_the_routing_key() -> None:
    assert "key-1" not in repr(AlertReceiver("https://hooks.test", "pagerduty", "key-1"))
