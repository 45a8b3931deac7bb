"""An event of a rule is the same however often it is told, and another one for another time."""

from datetime import UTC, datetime, timedelta

from automation_pipeline.core.json_model import as_document
from automation_pipeline.pricing.events import (
    policy_changed,
    policy_removed,
    promotion_ended,
    run_scheduled,
    schedule_missed,
)
from automation_pipeline.pricing.models.rules import parse_policy

NOW = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)


def test_a_start_is_told_once_a_time_of_the_schedule() -> None:
    first, again = (
        run_scheduled(3, "default", 7, NOW, NOW),
        run_scheduled(3, "default", 7, NOW, NOW + HOUR),
    )
    assert (first.key, first.name, first.correlation_id) == (
        "rule-schedule-3-1777888800000",
        "rule.scheduled.queued",
        "rule-run-7",
    )
    assert first.payload == {
        "ruleId": "3",
        "projectId": "default",
        "runId": "7",
        "scheduledFor": "2026-05-04T10:00:00.000Z",
    }
    assert again.key == first.key
    assert run_scheduled(3, "default", 8, NOW + HOUR, NOW).key != first.key


def test_what_was_missed_is_not_taken_for_what_was_started() -> None:
    event = schedule_missed(3, "default", NOW, NOW)
    assert (event.name, event.correlation_id) == ("rule.scheduled.missed", "rule-3")
    assert event.key != run_scheduled(3, "default", 7, NOW, NOW).key


def test_the_end_of_a_promotion_is_told_of_each_of_its_runs() -> None:
    first, second = (promotion_ended(3, "default", run_id, NOW, NOW) for run_id in (7, 8))
    assert (first.key, second.key) == (
        "rule-run-7-end-1777888800000",
        "rule-run-8-end-1777888800000",
    )
    assert first.payload == {
        "ruleId": "3",
        "projectId": "default",
        "runId": "7",
        "endsAt": "2026-05-04T10:00:00.000Z",
    }


def test_every_change_of_guardrails_is_told_with_what_they_are_by_now() -> None:
    policy = parse_policy({"autoApply": True})
    first, second = (policy_changed("eu", policy, "user:1", NOW, change) for change in ("a", "b"))
    assert (first.name, first.correlation_id) == ("policy.changed", "policy-eu")
    assert first.key != second.key
    assert first.payload == {
        "projectId": "eu",
        "changedBy": "user:1",
        "policy": as_document(policy),
    }


def test_guardrails_that_are_removed_twice_are_told_twice() -> None:
    first, second = policy_removed("eu", "user:1", NOW), policy_removed("eu", "user:1", NOW + HOUR)
    assert first.key != second.key
    assert first.payload == {"projectId": "eu", "removedBy": "user:1"}
