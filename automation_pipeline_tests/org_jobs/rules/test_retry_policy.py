"""When a failed job is tried again, by the tables of the reference."""

from datetime import UTC, datetime, time, timedelta
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import as_document, parse
from automation_pipeline.core.scheduling.timing import ExecutionWindow
from automation_pipeline.org_jobs.models.jobs import (
    BackoffType,
    RetryPolicy,
    StartWindow,
    is_retryable,
    retry_at,
    stored_policy,
)
from automation_pipeline_tests.tables import every_case

NOW = datetime(2026, 5, 4, 5, 59, 59, tzinfo=UTC)
LUCK = Random(1)
NIGHT = StartWindow(ExecutionWindow(time(2), time(6)), ZoneInfo("UTC"))


@every_case(
    ("kind", "backoff_ms", "waits"),
    [
        (BackoffType.FIXED, 1000, [1, 1, 1, 1, 1]),
        (BackoffType.EXPONENTIAL, 1000, [1, 2, 4, 8, 16]),
        (BackoffType.FIXED, 0, [0, 0]),
        (BackoffType.EXPONENTIAL, 3_600_000, [3600, 3600]),
        (BackoffType.EXPONENTIAL, 1_000_000, [1000, 2000, 3600]),
    ],
)
def test_the_waits_of_each_kind(kind: BackoffType, backoff_ms: int, waits: list[float]) -> None:
    policy = RetryPolicy(backoff_type=kind, backoff_ms=backoff_ms)
    assert [policy.wait_seconds(failures, LUCK) for failures in range(1, len(waits) + 1)] == waits


def test_without_a_policy_there_are_three_attempts_two_seconds_apart() -> None:
    policy = RetryPolicy()
    assert (policy.attempts, policy.wait_seconds(1, LUCK), policy.wait_seconds(2, LUCK)) == (
        3,
        2,
        2,
    )


@every_case(
    ("retries", "failures", "again"), [(0, 1, False), (1, 1, True), (1, 2, False), (10, 10, True)]
)
def test_there_is_one_attempt_more_than_there_are_retries(
    retries: int, failures: int, again: bool
) -> None:
    at = retry_at(RetryPolicy(max_retries=retries), failures, NOW, None, LUCK)
    assert at == (NOW + timedelta(seconds=2) if again else None)


def test_a_retry_waits_for_the_window() -> None:
    soon, late = RetryPolicy(backoff_ms=0), RetryPolicy(backoff_ms=61_000)
    assert retry_at(soon, 1, NOW, NIGHT, LUCK) == NOW
    assert retry_at(late, 1, NOW, NIGHT, LUCK) == datetime(2026, 5, 5, 2, tzinfo=UTC)


@every_case(
    ("code", "again"),
    [
        ("VALIDATION", False),
        ("NOT_FOUND", False),
        ("UNSUPPORTED", False),
        ("STALE", True),
        ("TIME_LIMIT", True),
        (None, True),
    ],
)
def test_whether_another_try_can_help(code: str | None, again: bool) -> None:
    assert is_retryable(code) is again


@given(failures=st.integers(1, 10), seed=st.integers(0, 100), backoff_ms=st.integers(0, 3_600_000))
def test_jitter_is_a_tenth_and_never_beyond_an_hour(
    failures: int, seed: int, backoff_ms: int
) -> None:
    policy = RetryPolicy(jitter=True, backoff_ms=backoff_ms, backoff_type=BackoffType.EXPONENTIAL)
    nominal = min(backoff_ms / 1000 * 2 ** (failures - 1), 3600)
    wait = policy.wait_seconds(failures, Random(seed))
    assert nominal * 0.9 - 1e-6 <= wait <= min(nominal * 1.1, 3600) + 1e-6


@every_case(
    ("given_", "field"),
    [
        ({"maxRetries": 11}, "maxRetries"),
        ({"maxRetries": -1}, "maxRetries"),
        ({"maxRetries": 1.5}, "maxRetries"),
        ({"maxRetries": "2"}, "maxRetries"),
        ({"backoffMs": 3_600_001}, "backoffMs"),
        ({"backoffMs": -1}, "backoffMs"),
        ({"backoffType": "linear"}, "backoffType"),
        ({"attempts": 3}, "attempts"),
    ],
)
def test_a_policy_out_of_bounds_is_refused_by_field(given_: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        parse(RetryPolicy, given_, "Invalid retry policy")
    assert [name for name, _ in refused.value.fields] == [field]


@every_case("document", [{"maxRetries": 11}, {"backoffType": "linear"}, {"other": 1}])
def test_one_that_was_stored_beyond_todays_bounds_tries_nothing_again(
    document: dict[str, Any],
) -> None:
    assert stored_policy(document).attempts == 1


def test_one_that_was_stored_is_read_as_it_was() -> None:
    policy = RetryPolicy(
        max_retries=7, backoff_ms=5, backoff_type=BackoffType.EXPONENTIAL, jitter=True
    )
    assert stored_policy(as_document(policy)) == policy
