"""Somebody is called strictly beyond a boundary, for the worst of it, and not again and again."""

from datetime import UTC, datetime, timedelta

from automation_pipeline.core.webhooks import AlertSeverity
from automation_pipeline.pricing.models.history import ProjectHealth
from automation_pipeline.pricing.rules.monitoring import evaluate_alerts, is_to_fire
from automation_pipeline_tests.tables import every_case

NOW = datetime(2026, 5, 4, 2, 0, tzinfo=UTC)


def success(applied: int, failed: int) -> ProjectHealth:
    return ProjectHealth(applied=applied, failed=failed)


@every_case(
    ("health", "fired"),
    [
        (success(97, 3), []),
        (success(96, 4), ["success_rate warning"]),
        (success(90, 10), ["success_rate warning"]),
        (success(89, 11), ["success_rate critical"]),
        (success(9, 10), []),
        (success(10, 10), ["success_rate critical"]),
        (success(0, 0), []),
        (ProjectHealth(dead_letters=50), []),
        (ProjectHealth(dead_letters=51), ["dlq_size warning"]),
        (ProjectHealth(dead_letters=100), ["dlq_size warning"]),
        (ProjectHealth(dead_letters=101), ["dlq_size critical"]),
        (ProjectHealth(rate_limits=3), []),
        (ProjectHealth(rate_limits=4), ["rate_limits warning"]),
        (
            ProjectHealth(applied=0, failed=500, dead_letters=500, rate_limits=9),
            ["success_rate critical", "dlq_size critical", "rate_limits warning"],
        ),
    ],
)
def test_who_is_called_for_what(health: ProjectHealth, fired: list[str]) -> None:
    assert [f"{alert.name} {alert.severity}" for alert in evaluate_alerts(health)] == fired
    assert all(alert.message.endswith(".") for alert in evaluate_alerts(health))


@every_case(
    ("severity", "last", "minutes_ago", "fires"),
    [
        ("warning", None, 0, True),
        ("warning", "warning", 29, False),
        ("warning", "warning", 30, True),
        ("critical", "critical", 14, False),
        ("critical", "critical", 15, True),
        ("critical", "warning", 1, True),
        ("warning", "critical", 16, False),
    ],
)
def test_an_alert_rests_unless_it_became_worse(
    severity: str, last: str | None, minutes_ago: int, *, fires: bool
) -> None:
    fired = None if last is None else (AlertSeverity(last), NOW - timedelta(minutes=minutes_ago))
    assert is_to_fire(AlertSeverity(severity), fired, NOW) is fires
