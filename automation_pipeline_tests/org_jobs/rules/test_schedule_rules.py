"""What a schedule must be as a whole."""

from datetime import timedelta
from typing import Any

import pytest

from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.org_jobs.rules.schedules import read_schedule, refuse_never_due
from automation_pipeline_tests.org_jobs.rules.schedules import NOW, said
from automation_pipeline_tests.tables import every_case


def fields_at_fault(given: dict[str, object]) -> set[str]:
    with pytest.raises(InvalidInputError) as refused:
        read_schedule(given)
    return {field for field, _ in refused.value.fields}


@every_case(
    ("fields", "faults"),
    [
        ({"cronExpression": "0 0 2 * * *"}, {"cronExpression"}),
        ({"cronExpression": "0 24 * * *"}, {"cronExpression"}),
        ({"timezone": "Nowhere/City"}, {"timezone"}),
        ({"executionWindowStart": "22:00"}, {"executionWindowEnd"}),
        ({"executionWindowEnd": "22:00"}, {"executionWindowStart"}),
        ({"executionWindowStart": "22:00", "executionWindowEnd": "22:00"}, {"executionWindowEnd"}),
        (
            {"executionWindowStart": "9:00", "executionWindowEnd": "25:00"},
            {"executionWindowStart", "executionWindowEnd"},
        ),
        ({"windowPolicy": "DROP"}, {"windowPolicy"}),
        ({"latestStartCutoffMin": 30}, {"latestStartCutoffMin"}),
        ({"retryPolicy": {"maxRetries": 11}}, {"retryPolicy.maxRetries"}),
        (
            {"retryPolicy": {"maxRetries": -1, "backoffMs": 3_600_001}},
            {"retryPolicy.maxRetries", "retryPolicy.backoffMs"},
        ),
        ({"retryPolicy": {"backoffType": "linear"}}, {"retryPolicy.backoffType"}),
        ({"priority": 0}, {"priority"}),
        ({"priority": 10}, {"priority"}),
        ({"priority": True}, {"priority"}),
        ({"jitterS": 86_401}, {"jitterS"}),
        ({"misfireGraceS": 31_536_001}, {"misfireGraceS"}),
        ({"autoPauseAfter": 1001}, {"autoPauseAfter"}),
        ({"startAt": "2026-06-02T00:00:00Z", "endAt": "2026-06-01T00:00:00Z"}, {"endAt"}),
        ({"startAt": "2026-06-02T00:00:00"}, {"startAt"}),
        ({"excludedOn": ["tomorrow"]}, {"excludedOn.0"}),
        ({"jobType": "MAKE_COFFEE"}, {"jobType"}),
        ({"payload": {}}, {"payload.url"}),
        ({"payload": {"url": "https://example.com/", "body": "x" * 270_000}}, {"payload"}),
        ({"serverInstanceId": "3"}, {"serverInstanceId"}),
        ({"jobType": "SERVER_RESTART", "payload": {}}, {"serverInstanceId"}),
        (
            {"jobType": "MAKE_COFFEE", "latestStartCutoffMin": 5},
            {"jobType", "latestStartCutoffMin"},
        ),
        ({"name": " "}, {"name"}),
        ({"state": "ACTIVE"}, {"state"}),
    ],
)
def test_every_field_at_fault_is_named(fields: dict[str, object], faults: set[str]) -> None:
    assert fields_at_fault(said(**fields)) == faults


@every_case(("cutoff", "is_allowed"), [(0, True), (239, True), (240, False), (600, False)])
def test_the_cutoff_is_shorter_than_the_window(cutoff: int, is_allowed: bool) -> None:
    window = {
        "executionWindowStart": "22:00",
        "executionWindowEnd": "02:00",
        "latestStartCutoffMin": cutoff,
    }
    if is_allowed:
        assert read_schedule(said(**window)).latest_start_cutoff_min == cutoff
    else:
        assert fields_at_fault(said(**window)) == {"latestStartCutoffMin"}


@every_case(
    ("cron", "start", "end", "is_allowed"),
    [
        ("0 12 * * *", "22:00", "06:00", False),
        ("0 23 * * *", "22:00", "06:00", True),
        ("0 1 * * *", "02:00", "06:00", False),
        ("0 12 * * 1", "02:00", "06:00", False),
        ("30 * * * *", "02:00", "06:00", True),
    ],
)
def test_a_filter_that_leaves_everything_out_is_refused(
    cron: str, start: str, end: str, is_allowed: bool
) -> None:
    window = {"cronExpression": cron, "executionWindowStart": start, "executionWindowEnd": end}
    assert read_schedule(said(**window, windowPolicy="CLAMP"))
    filtered = said(**window, windowPolicy="FILTER")
    if is_allowed:
        assert read_schedule(filtered)
    else:
        assert fields_at_fault(filtered) == {"windowPolicy"}


def test_a_type_has_its_own_name_and_a_payload_that_is_filled_in() -> None:
    schedule = read_schedule(said(jobType="restart", payload={}, serverInstanceId="3"))
    assert (schedule.job_type, schedule.server_instance_id) == ("SERVER_RESTART", 3)
    assert read_schedule(said()).payload.keys() > {"url"}


def in_days(days: float) -> str:
    return iso(NOW + timedelta(days=days))


@every_case(
    ("fields", "fault"),
    [
        ({}, None),
        ({"endAt": in_days(2)}, None),
        ({"endAt": in_days(-1)}, "endAt"),
        ({"endAt": in_days(0.1)}, "endAt"),
        ({"endAt": in_days(1), "excludedOn": ["2026-05-05"]}, "endAt"),
    ],
)
def test_a_new_one_is_due_at_least_once(fields: dict[str, Any], fault: str | None) -> None:
    schedule = read_schedule(said(**fields))
    if fault is None:
        refuse_never_due(schedule, NOW)
        return
    with pytest.raises(InvalidInputError) as refused:
        refuse_never_due(schedule, NOW)
    assert [field for field, _ in refused.value.fields] == [fault]
