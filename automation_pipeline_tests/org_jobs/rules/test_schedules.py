"""Validation of schedules, their changes, and manual runs."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from automation_pipeline.core.clock import Days, iso
from automation_pipeline.core.errors import ConflictError, InvalidInputError
from automation_pipeline.core.json_model import as_document
from automation_pipeline.core.scheduling.cron import OverlapPolicy
from automation_pipeline.core.scheduling.timing import TimingFields, read_timing
from automation_pipeline.org_jobs.models.jobs import ScheduleState
from automation_pipeline.org_jobs.models.organisations import CronText, Payload, TimeOfDay, TimeZone
from automation_pipeline.org_jobs.models.schedules import (
    LONGEST_REASON,
    OrgScheduleDefinition,
    input_document,
    last_run_status,
    read_pause,
    read_skip,
)
from automation_pipeline.org_jobs.rules.schedules import (
    NEVER_NULL,
    NextState,
    changed_schedule,
    check_client_key,
    next_after,
    read_schedule,
    refuse_closed,
    refuse_never_due,
    refuse_overlap,
    refuse_pause,
    state_after,
    window_timing,
)
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.org_jobs.rules.schedules import NOW, schedule_input, stored


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
def test_the_error_names_every_invalid_field(fields: dict[str, object], faults: set[str]) -> None:
    assert fields_at_fault(schedule_input(**fields)) == faults


@every_case(("cutoff", "is_allowed"), [(0, True), (239, True), (240, False), (600, False)])
def test_the_cutoff_is_shorter_than_the_window(cutoff: int, is_allowed: bool) -> None:
    window = {
        "executionWindowStart": "22:00",
        "executionWindowEnd": "02:00",
        "latestStartCutoffMin": cutoff,
    }
    if is_allowed:
        assert read_schedule(schedule_input(**window)).latest_start_cutoff_min == cutoff
    else:
        assert fields_at_fault(schedule_input(**window)) == {"latestStartCutoffMin"}


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
def test_a_filter_that_excludes_every_due_time_is_refused(
    cron: str, start: str, end: str, is_allowed: bool
) -> None:
    window = {"cronExpression": cron, "executionWindowStart": start, "executionWindowEnd": end}
    assert read_schedule(schedule_input(**window, windowPolicy="CLAMP"))
    filtered = schedule_input(**window, windowPolicy="FILTER")
    if is_allowed:
        assert read_schedule(filtered)
    else:
        assert fields_at_fault(filtered) == {"windowPolicy"}


def test_a_type_alias_is_resolved_and_the_payload_gets_defaults() -> None:
    schedule = read_schedule(schedule_input(jobType="restart", payload={}, serverInstanceId="3"))
    assert (schedule.job_type, schedule.server_instance_id) == ("SERVER_RESTART", 3)
    assert read_schedule(schedule_input()).payload.keys() > {"url"}


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
def test_a_new_schedule_must_be_due_at_least_once(
    fields: dict[str, Any], fault: str | None
) -> None:
    schedule = read_schedule(schedule_input(**fields))
    if fault is None:
        refuse_never_due(schedule, NOW)
        return
    with pytest.raises(InvalidInputError) as refused:
        refuse_never_due(schedule, NOW)
    assert [field for field, _ in refused.value.fields] == [fault]


@every_case(
    ("kind", "given", "kept"),
    [
        (CronText, "0 9 * * 1-5", "0 9 * * 1-5"),
        (CronText, "@daily", "@daily"),
        (TimeZone, "Europe/Paris", "Europe/Paris"),
        (TimeOfDay, "23:59", "23:59"),
        (Days, ["2026-12-25", "2026-05-01", "2026-12-25"], ("2026-05-01", "2026-12-25")),
        (Days, None, ()),
        (Payload, {"a": [1]}, {"a": [1]}),
    ],
)
def test_valid_field_is_kept(kind: object, given: object, kept: object) -> None:
    assert TypeAdapter(kind).validate_python(given) == kept


@every_case(
    ("kind", "given"),
    [
        (CronText, "0 0 2 * * *"),
        (CronText, "0 24 * * *"),
        (CronText, "0 0 31 2 *"),
        (CronText, "0 0 * * 8"),
        (TimeZone, "Mars/Olympus"),
        (TimeZone, "Europe"),
        (TimeZone, "localtime"),
        (TimeOfDay, "24:00"),
        (TimeOfDay, "2:00"),
        (TimeOfDay, "02:60"),
        (TimeOfDay, "02:00\n"),
        (TimeOfDay, "٠٢:00"),
        (Days, ["2026-02-30"]),
        (Days, ["25/12/2026"]),
        (Days, [20261225]),
        (Payload, None),
        (Payload, [1]),
    ],
)
def test_invalid_field_is_refused(kind: object, given: object) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(kind).validate_python(given)


@every_case(
    ("dispatch", "job", "status"),
    [
        (None, None, None),
        ("dispatched", None, "success"),
        ("dispatched", "failed", "failed"),
        ("dispatched", "cancelled", "cancelled"),
        ("skipped_overlap", "success", "skipped"),
        ("skipped_overlap", "failed", "failed"),
        ("scheduler_failed", "success", "scheduler_failed"),
    ],
)
def test_the_status_of_the_last_run(
    dispatch: str | None, job: str | None, status: str | None
) -> None:
    assert last_run_status(dispatch, job) == status


def test_omitted_field_has_its_default() -> None:
    document = input_document(stored())
    expected = {
        "priority": 5,
        "enabled": True,
        "timezone": "UTC",
        "windowPolicy": "CLAMP",
        "misfirePolicy": "FIRE_ONCE",
        "misfireGraceS": 3600,
        "overlapPolicy": "SKIP",
        "jitterS": 0,
        "autoPauseAfter": 10,
        "excludedOn": [],
    }
    assert (
        expected.items()
        <= {name: value for name, value in document.items() if name in expected}.items()
    )
    assert len(document) == len(OrgScheduleDefinition.model_fields)


def test_stored_schedule_is_shown_as_json() -> None:
    schedule = stored({"startAt": "2026-06-01T02:00:00+02:00"})
    document = as_document(schedule)
    assert document["startAt"] == "2026-06-01T00:00:00.000Z"
    assert type(schedule).model_validate(document) == schedule


ACTIVE, PAUSED, INVALID, COMPLETED = (
    ScheduleState.ACTIVE,
    ScheduleState.PAUSED,
    ScheduleState.INVALID_CRON,
    ScheduleState.COMPLETED,
)
PAST, AHEAD = iso(NOW - timedelta(days=1)), iso(NOW + timedelta(days=30))


def test_patch_keeps_other_fields_and_null_clears() -> None:
    before = stored({"description": "Why", "retryPolicy": {"maxRetries": 4}, "jitterS": 30})
    changed = changed_schedule(before, {"description": None, "retryPolicy": None, "priority": 1})
    assert (changed.description, changed.retry_policy, changed.priority, changed.jitter_s) == (
        None,
        None,
        1,
        30,
    )
    assert changed.payload == before.payload


@every_case(
    "field", ["name", "cronExpression", "timezone", "priority", "enabled", "payload", "jitterS"]
)
def test_null_is_refused_where_it_is_not_allowed(field: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        changed_schedule(stored(), {field: None})
    assert (field, NEVER_NULL) in refused.value.fields


@every_case(
    ("known", "patch", "state"),
    [
        ({}, {"name": "Other"}, None),
        ({}, {"payload": {"url": "https://example.org/"}}, None),
        ({}, {"cronExpression": "0 3 * * *"}, ACTIVE),
        ({}, {"jitterS": 5}, ACTIVE),
        ({}, {"enabled": False}, PAUSED),
        ({}, {"endAt": PAST}, COMPLETED),
        ({"state": PAUSED, "enabled": False}, {"cronExpression": "0 3 * * *"}, PAUSED),
        ({"state": PAUSED, "enabled": False}, {"enabled": True}, ACTIVE),
        ({"state": PAUSED, "is_suspended": True}, {"cronExpression": "0 3 * * *"}, PAUSED),
        ({"state": INVALID}, {"cronExpression": "0 3 * * *"}, ACTIVE),
        ({"state": INVALID, "enabled": False}, {"cronExpression": "0 3 * * *"}, PAUSED),
        ({"state": COMPLETED, "end_at": NOW - timedelta(days=2)}, {"name": "Other"}, None),
        ({"state": COMPLETED, "end_at": NOW - timedelta(days=2)}, {"endAt": AHEAD}, ACTIVE),
        ({"state": COMPLETED, "end_at": NOW - timedelta(days=2)}, {"endAt": PAST}, COMPLETED),
    ],
)
def test_the_state_after_a_change(
    known: dict[str, Any], patch: dict[str, object], state: ScheduleState | None
) -> None:
    before = stored(**known)
    status = state_after(before, changed_schedule(before, patch), NOW)
    assert (status and status.state) == state
    assert status is None or (status.planned is not None) == (state is ACTIVE)


def test_change_without_due_times_is_refused_unless_it_has_an_end() -> None:
    before, end_of_time = stored(), datetime(9999, 12, 31, 23, tzinfo=UTC)
    with pytest.raises(InvalidInputError) as refused:
        state_after(before, changed_schedule(before, {"cronExpression": "0 3 * * *"}), end_of_time)
    assert [field for field, _ in refused.value.fields] == ["cronExpression"]
    ends = changed_schedule(before, {"cronExpression": "0 3 * * *", "endAt": AHEAD})
    assert state_after(before, ends, end_of_time) == NextState(COMPLETED)


@given(st.integers(0, 10_000), st.integers(-10_000, 10_000))
def test_next_due_time_is_later_than_the_decided_one(now: int, last: int) -> None:
    timing = read_timing(TimingFields(seed="s", cron_expression="*/5 * * * *", timezone="UTC"))
    at, decided = NOW + timedelta(minutes=now), NOW + timedelta(minutes=last)
    planned = next_after(timing, at, decided)
    assert planned is not None
    assert planned.scheduled_for > max(at, decided)


@every_case(
    ("state", "is_refused"), [(ACTIVE, False), (PAUSED, False), (INVALID, True), (COMPLETED, True)]
)
def test_schedule_without_due_times_cannot_be_paused(
    state: ScheduleState, is_refused: bool
) -> None:
    if is_refused:
        with pytest.raises(ConflictError):
            refuse_pause(state)
    else:
        refuse_pause(state)


WINDOW = {
    "executionWindowStart": "22:00",
    "executionWindowEnd": "06:00",
    "timezone": "Europe/Paris",
}


@every_case(
    ("at", "opens"),
    [
        (datetime(2026, 5, 4, 20, 0, tzinfo=UTC), None),
        (datetime(2026, 5, 5, 4, 0, 59, tzinfo=UTC), None),
        (datetime(2026, 5, 4, 19, 59, tzinfo=UTC), "2026-05-04T20:00:00.000Z"),
        (datetime(2026, 5, 5, 4, 1, tzinfo=UTC), "2026-05-05T20:00:00.000Z"),
    ],
)
def test_the_error_about_a_closed_window_names_its_opening(at: datetime, opens: str | None) -> None:
    schedule = stored(WINDOW)
    refuse_closed(schedule, window_timing(schedule, ignore_window=True), at)
    if opens is None:
        refuse_closed(schedule, window_timing(schedule), at)
    else:
        with pytest.raises(ConflictError, match=opens):
            refuse_closed(schedule, window_timing(schedule), at)


def test_manual_run_ignores_an_invalid_cron_but_not_the_zone_of_a_window() -> None:
    broken = {"cron_expression": "gone", "timezone": "Gone/City"}
    assert window_timing(stored(**broken)).window is None
    assert window_timing(stored(WINDOW, **broken), ignore_window=True).window is None
    with pytest.raises(ConflictError, match="Gone/City"):
        window_timing(stored(WINDOW, **broken))


@every_case(
    ("policy", "at_work", "waiting", "named"),
    [
        ("SKIP", [], [], None),
        ("SKIP", [7], [], 7),
        ("SKIP", [], [8], 8),
        ("BUFFER_ONE", [7], [], None),
        ("BUFFER_ONE", [], [8], None),
        ("BUFFER_ONE", [7], [8], 8),
        ("BUFFER_ALL", [7], [8, 9], None),
        ("ALLOW_ALL", [7], [8], None),
        ("CANCEL_OTHER", [7], [8], None),
        ("TERMINATE_OTHER", [7], [8], None),
    ],
)
def test_the_overlap_policy_decides_which_job_blocks(
    policy: str, at_work: list[int], waiting: list[int], named: int | None
) -> None:
    schedule = stored({"overlapPolicy": policy})
    assert OverlapPolicy(policy).replaces_others is policy.endswith("_OTHER")
    if named is None:
        refuse_overlap(schedule, at_work, waiting)
    else:
        with pytest.raises(ConflictError, match=f"Job {named} "):
            refuse_overlap(schedule, at_work, waiting)


@every_case(
    ("key", "is_fine"),
    [(None, True), ("k", True), ("k" * 200, True), ("", False), ("k" * 201, False)],
)
def test_an_idempotency_key_has_a_maximum_length(key: str | None, is_fine: bool) -> None:
    if is_fine:
        check_client_key(key)
    else:
        with pytest.raises(InvalidInputError):
            check_client_key(key)


PAUSED_AT = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)


def test_a_pause_may_have_a_reason_and_an_end() -> None:
    request = read_pause("Holidays", PAUSED_AT + timedelta(days=1), PAUSED_AT)
    assert (request.reason, request.until) == ("Holidays", PAUSED_AT + timedelta(days=1))
    assert read_skip(None).reason is None


@every_case(
    ("reason", "until", "field"),
    [
        ("x" * (LONGEST_REASON + 1), None, "reason"),
        ("a\0b", None, "reason"),
        (None, PAUSED_AT, "until"),
        (None, datetime(2026, 6, 1), "until"),  # noqa: DTZ001  that is the fault
    ],
)
def test_invalid_pause_is_refused(reason: str | None, until: datetime | None, field: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        read_pause(reason, until, PAUSED_AT)
    assert [name for name, _ in refused.value.fields] == [field]
