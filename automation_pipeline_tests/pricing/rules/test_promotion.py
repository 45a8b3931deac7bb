"""A promotion starts and ends once, and is not started only to be ended."""

from datetime import UTC, datetime, timedelta

from automation_pipeline.pricing.rules.runs import PlannedRule, due_action
from automation_pipeline_tests.tables import every_case

NOW = datetime(2026, 5, 4, 2, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)


@every_case(
    ("starts", "ends", "enabled", "applied", "what"),
    [
        (None, None, True, False, None),
        (HOUR, None, True, False, None),
        (-HOUR, None, True, False, "start"),
        (timedelta(0), HOUR, True, False, "start"),
        (-HOUR, None, False, False, None),
        (None, HOUR, True, True, None),
        (None, timedelta(0), True, True, "end"),
        (None, -HOUR, False, True, "end"),
        (None, -HOUR, True, False, None),
        (-2 * HOUR, -HOUR, True, False, "missed"),
        (-2 * HOUR, -HOUR, True, True, "end"),
    ],
)
def test_what_is_due(
    starts: timedelta | None,
    ends: timedelta | None,
    what: str | None,
    *,
    enabled: bool,
    applied: bool,
) -> None:
    rule = PlannedRule(
        id=1,
        project_id="default",
        version=1,
        version_hash="h",
        enabled=enabled,
        schedule_at=None if starts is None else NOW + starts,
        ends_at=None if ends is None else NOW + ends,
        is_applied=applied,
    )
    assert due_action(rule, NOW) == what
