"""What a change of a schedule comes to."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import ConflictError, InvalidInputError
from automation_pipeline.core.scheduling.timing import TimingFields, read_timing
from automation_pipeline.org_jobs.models.states import ScheduleState
from automation_pipeline.org_jobs.rules.schedules import (
    NEVER_NULL,
    NextState,
    changed_schedule,
    next_after,
    refuse_pause,
    state_after,
)
from automation_pipeline_tests.org_jobs.rules.schedules import NOW, stored
from automation_pipeline_tests.tables import every_case

ACTIVE, PAUSED, INVALID, COMPLETED = (
    ScheduleState.ACTIVE,
    ScheduleState.PAUSED,
    ScheduleState.INVALID_CRON,
    ScheduleState.COMPLETED,
)
PAST, AHEAD = iso(NOW - timedelta(days=1)), iso(NOW + timedelta(days=30))


def test_what_the_patch_does_not_name_stays_and_null_clears() -> None:
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
def test_what_may_not_be_null_says_so(field: str) -> None:
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
    standing = state_after(before, changed_schedule(before, patch), NOW)
    assert (standing and standing.state) == state
    assert standing is None or (standing.planned is not None) == (state is ACTIVE)


def test_a_change_that_leaves_no_time_is_refused_unless_an_end_says_so() -> None:
    before, end_of_time = stored(), datetime(9999, 12, 31, 23, tzinfo=UTC)
    with pytest.raises(InvalidInputError) as refused:
        state_after(before, changed_schedule(before, {"cronExpression": "0 3 * * *"}), end_of_time)
    assert [field for field, _ in refused.value.fields] == ["cronExpression"]
    ends = changed_schedule(before, {"cronExpression": "0 3 * * *", "endAt": AHEAD})
    assert state_after(before, ends, end_of_time) == NextState(COMPLETED)


@given(st.integers(0, 10_000), st.integers(-10_000, 10_000))
def test_what_was_decided_upon_never_comes_again_even_if_the_clock_is_set_back(
    now: int, last: int
) -> None:
    timing = read_timing(TimingFields(seed="s", cron_expression="*/5 * * * *", timezone="UTC"))
    at, decided = NOW + timedelta(minutes=now), NOW + timedelta(minutes=last)
    planned = next_after(timing, at, decided)
    assert planned is not None
    assert planned.scheduled_for > max(at, decided)


@every_case(
    ("state", "is_refused"), [(ACTIVE, False), (PAUSED, False), (INVALID, True), (COMPLETED, True)]
)
def test_what_is_not_due_any_more_cannot_be_paused(state: ScheduleState, is_refused: bool) -> None:
    if is_refused:
        with pytest.raises(ConflictError):
            refuse_pause(state)
    else:
        refuse_pause(state)
