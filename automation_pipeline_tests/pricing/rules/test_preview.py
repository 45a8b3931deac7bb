"""A preview is applied while it is fresh, by those who may, and not twice in a row."""

from datetime import UTC, datetime, timedelta

from automation_pipeline.pricing.rules.runs import (
    approval_fault,
    rests_until,
    stale_fault,
)
from automation_pipeline_tests.tables import every_case

NOW = datetime(2026, 5, 4, 2, 0, tzinfo=UTC)


@every_case(
    ("rule_hash", "age", "reason"),
    [
        ("h", timedelta(minutes=15), None),
        (
            "h",
            timedelta(minutes=15, seconds=1),
            "The preview is older than 15 minutes: preview the rule again.",
        ),
        ("other", timedelta(0), "The rule was changed after the preview: preview it again."),
    ],
)
def test_a_preview_grows_stale(rule_hash: str, age: timedelta, reason: str | None) -> None:
    assert stale_fault("h", rule_hash, NOW - age, NOW) == reason


@every_case(
    ("auto_apply", "approved_by", "fault"),
    [
        (True, None, None),
        (False, None, "The run must be approved first."),
        (False, "ann", "The run must be approved by somebody else than its creator."),
        (False, "bob", "The run must be approved by somebody else than the author of its rule."),
        (False, "cyd", None),
    ],
)
def test_two_people_stand_behind_a_run(
    approved_by: str | None, fault: str | None, *, auto_apply: bool
) -> None:
    said = approval_fault(
        auto_apply=auto_apply, created_by="ann", written_by="bob", approved_by=approved_by
    )
    assert said == fault


@every_case(
    ("minutes_ago", "cooldown", "rests"),
    [(None, 60, None), (30, 0, None), (30, 60, 30), (60, 60, None)],
)
def test_a_rule_rests_after_it_was_applied(
    minutes_ago: int | None, cooldown: int, rests: int | None
) -> None:
    last = None if minutes_ago is None else NOW - timedelta(minutes=minutes_ago)
    until = None if rests is None else NOW + timedelta(minutes=rests)
    assert rests_until(last, cooldown, NOW) == until
