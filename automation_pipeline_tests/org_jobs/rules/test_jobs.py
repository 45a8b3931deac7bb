"""Retry policies, ends of attempts, and the expiry of pending runs."""

from datetime import UTC, datetime, time, timedelta
from itertools import product
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.core.errors import (
    AutomationError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
    PermanentError,
    TransientError,
)
from automation_pipeline.core.json_model import as_document, parse
from automation_pipeline.core.scheduling.timing import ExecutionWindow
from automation_pipeline.core.scheduling.zones import zone
from automation_pipeline.core.state_machine import IllegalMoveError
from automation_pipeline.org_jobs.models.jobs import (
    JOB_RUN,
    AttemptEnd,
    BackoffType,
    OrgJobsRunState,
    Performer,
    RetryPolicy,
    RunEnd,
    StartWindow,
    attempt_cancelled,
    attempt_failed,
    attempt_succeeded,
    attempt_too_long,
    end_of_error,
    end_of_unattended,
    expires_at,
    is_retryable,
    retry_at,
    run_end,
    stored_policy,
)
from automation_pipeline_tests.cases import every_case

BEFORE_SIX = datetime(2026, 5, 4, 5, 59, 59, tzinfo=UTC)
RANDOM = Random(1)
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
def test_waits_of_each_backoff_type(kind: BackoffType, backoff_ms: int, waits: list[float]) -> None:
    policy = RetryPolicy(backoff_type=kind, backoff_ms=backoff_ms)
    assert [policy.wait_seconds(failures, RANDOM) for failures in range(1, len(waits) + 1)] == waits


def test_without_a_policy_there_are_three_attempts_two_seconds_apart() -> None:
    policy = RetryPolicy()
    assert (policy.attempts, policy.wait_seconds(1, RANDOM), policy.wait_seconds(2, RANDOM)) == (
        3,
        2,
        2,
    )


@every_case(
    ("retries", "failures", "again"), [(0, 1, False), (1, 1, True), (1, 2, False), (10, 10, True)]
)
def test_attempts_are_retries_plus_one(retries: int, failures: int, again: bool) -> None:
    at = retry_at(RetryPolicy(max_retries=retries), failures, BEFORE_SIX, None, RANDOM)
    assert at == (BEFORE_SIX + timedelta(seconds=2) if again else None)


def test_a_retry_waits_for_the_window() -> None:
    soon, late = RetryPolicy(backoff_ms=0), RetryPolicy(backoff_ms=61_000)
    assert retry_at(soon, 1, BEFORE_SIX, NIGHT, RANDOM) == BEFORE_SIX
    assert retry_at(late, 1, BEFORE_SIX, NIGHT, RANDOM) == datetime(2026, 5, 5, 2, tzinfo=UTC)


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
def test_retryable_error_codes(code: str | None, again: bool) -> None:
    assert is_retryable(code) is again


@given(failures=st.integers(1, 10), seed=st.integers(0, 100), backoff_ms=st.integers(0, 3_600_000))
def test_jitter_is_ten_percent_and_waits_are_at_most_an_hour(
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
def test_the_error_names_the_field_of_a_policy_out_of_bounds(
    given_: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidInputError) as refused:
        parse(RetryPolicy, given_, "Invalid retry policy")
    assert [name for name, _ in refused.value.fields] == [field]


@every_case("document", [{"maxRetries": 11}, {"backoffType": "linear"}, {"other": 1}])
def test_stored_policy_out_of_bounds_allows_no_retry(
    document: dict[str, Any],
) -> None:
    assert stored_policy(document).attempts == 1


def test_stored_policy_is_read_unchanged() -> None:
    policy = RetryPolicy(
        max_retries=7, backoff_ms=5, backoff_type=BackoffType.EXPONENTIAL, jitter=True
    )
    assert stored_policy(as_document(policy)) == policy


NOW = datetime(2026, 5, 4, 10, tzinfo=UTC)
AGAIN = RunEnd(OrgJobsRunState.PENDING, NOW + timedelta(seconds=2))


def ended(end: AttemptEnd, **facts: Any) -> RunEnd:
    defaults: dict[str, Any] = {
        "from_state": OrgJobsRunState.RUNNING,
        "attempt_no": 1,
        "policy": RetryPolicy(),
        "window": None,
        "is_cancel_wanted": False,
        "now": NOW,
        "random": Random(1),
    }
    return run_end(end, **{**defaults, **facts})


@every_case(
    ("end", "facts", "becomes"),
    [
        (attempt_succeeded(), {}, RunEnd(OrgJobsRunState.SUCCESS)),
        (attempt_failed("Broken."), {}, AGAIN),
        (attempt_failed("Broken."), {"attempt_no": 2}, AGAIN),
        (attempt_failed("Broken."), {"attempt_no": 3}, RunEnd(OrgJobsRunState.FAILED)),
        (
            attempt_failed("Broken."),
            {"policy": RetryPolicy(max_retries=0)},
            RunEnd(OrgJobsRunState.FAILED),
        ),
        (attempt_failed("Wrong.", "VALIDATION"), {}, RunEnd(OrgJobsRunState.FAILED)),
        (attempt_failed("Broken."), {"is_cancel_wanted": True}, RunEnd(OrgJobsRunState.FAILED)),
        (attempt_failed("Silent.", "STALE"), {}, AGAIN),
        (attempt_too_long(900), {}, AGAIN),
        (attempt_cancelled("Not needed."), {}, RunEnd(OrgJobsRunState.CANCELLED)),
        (
            attempt_cancelled(),
            {"from_state": OrgJobsRunState.PENDING},
            RunEnd(OrgJobsRunState.CANCELLED),
        ),
        (
            attempt_failed("Late.", "EXPIRED"),
            {"from_state": OrgJobsRunState.PENDING},
            RunEnd(OrgJobsRunState.FAILED),
        ),
    ],
)
def test_run_state_after_an_attempt(
    end: AttemptEnd, facts: dict[str, Any], becomes: RunEnd
) -> None:
    assert ended(end, **facts) == becomes


ILLEGAL = [
    (from_state, to)
    for from_state, to in product(OrgJobsRunState, OrgJobsRunState)
    if not JOB_RUN.can_move(from_state, to)
]


@every_case(
    ("from_state", "to"), [pair for pair in ILLEGAL if pair[1] is not OrgJobsRunState.PENDING]
)
def test_an_illegal_end_of_an_attempt_is_refused(
    from_state: OrgJobsRunState, to: OrgJobsRunState
) -> None:
    with pytest.raises(IllegalMoveError):
        ended(AttemptEnd(status=to, error_code="FAILED"), from_state=from_state)


def test_illegal_transitions_are_refused() -> None:
    assert JOB_RUN.terminal == {OrgJobsRunState.SUCCESS, OrgJobsRunState.CANCELLED}
    assert not JOB_RUN.can_move(OrgJobsRunState.FAILED, OrgJobsRunState.SUCCESS)
    assert not JOB_RUN.can_move(OrgJobsRunState.PENDING, OrgJobsRunState.SUCCESS)


TEN = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)
SOON = TEN + timedelta(seconds=1)
RUNNING = {
    "status": OrgJobsRunState.RUNNING,
    "started_at": TEN - timedelta(minutes=3),
    "deadline_at": SOON,
}
PENDING = {"status": OrgJobsRunState.PENDING, "expires_at": TEN}


@every_case(
    ("status", "outcome"),
    [
        (RUNNING, None),
        (RUNNING | {"silent_seconds": 60.0}, ("failed", "STALE")),
        (RUNNING | {"deadline_at": TEN}, ("failed", "TIME_LIMIT")),
        (RUNNING | {"deadline_at": TEN, "silent_seconds": 60.0}, ("failed", "TIME_LIMIT")),
        (RUNNING | {"is_cancel_wanted": True}, None),
        (RUNNING | {"is_cancel_wanted": True, "silent_seconds": 60.0}, ("cancelled", None)),
        (RUNNING | {"is_cancel_wanted": True, "deadline_at": TEN}, ("cancelled", None)),
        (RUNNING | {"is_followed": True, "deadline_at": TEN}, None),
        (RUNNING | {"deadline_at": None, "expires_at": TEN}, None),
        (PENDING, ("failed", "EXPIRED")),
        (PENDING | {"expires_at": SOON}, None),
        (PENDING | {"expires_at": None}, None),
        (PENDING | {"is_held": True}, None),
        (
            {
                "status": OrgJobsRunState.FAILED,
                "silent_seconds": 60.0,
                "deadline_at": TEN,
                "expires_at": TEN,
            },
            None,
        ),
    ],
)
def test_end_of_unattended_runs(
    status: dict[str, object], outcome: tuple[str, str | None] | None
) -> None:
    end = end_of_unattended(TEN, **{"performer": Performer.AGENT} | status)
    assert (end and (end.status, end.error_code)) == outcome


@every_case(
    ("performer", "words"),
    [
        (
            Performer.AGENT,
            "It did not start by 2026-05-04T10:00:00.000Z: is the agent of its server running?",
        ),
        (
            Performer.SERVICE,
            "It did not start by 2026-05-04T10:00:00.000Z: does Dagster start workers",
        ),
    ],
)
def test_expired_run_names_its_performer(performer: Performer, words: str) -> None:
    end = end_of_unattended(
        TEN, performer=performer, status=OrgJobsRunState.PENDING, expires_at=TEN
    )
    assert end is not None
    assert end.error is not None
    assert end.error.startswith(words)
    assert ("agent" in end.error) == (performer is Performer.AGENT)


BEGINS = datetime(2026, 5, 4, 10, tzinfo=UTC)
DAY = timedelta(days=1)


@every_case(("has_window", "days"), [(False, 1), (True, 2)])
def test_run_expires_after_a_day_or_the_next_window(has_window: bool, days: int) -> None:
    assert expires_at(BEGINS, has_window=has_window) == BEGINS + days * DAY
    assert (
        expires_at(BEGINS, has_window=has_window, longest_wait=3 * DAY) == BEGINS + (days + 2) * DAY
    )


@every_case("month", [3, 10])
def test_expiry_includes_a_whole_window_across_clock_changes(month: int) -> None:
    window = StartWindow(ExecutionWindow.parse("01:00", "03:30"), zone("Europe/Paris"))
    for day in range(20, 31):
        starts = window.first_at(datetime(2026, month, day, 12, tzinfo=UTC))
        is_over = starts + timedelta(hours=4)
        next_opening = window.first_at(is_over)
        assert starts < is_over < next_opening
        assert expires_at(starts, has_window=True) >= next_opening + timedelta(hours=4)


@every_case(
    ("error", "code", "is_retried"),
    [
        (TransientError("It is busy."), "FAILED", True),
        (ConflictError("It has a run."), "CONFLICT", True),
        (NotFoundError("It is gone."), "NOT_FOUND", False),
        (InvalidInputError("It is wrong."), "VALIDATION", False),
        (PermanentError("It is not configured."), "UNSUPPORTED", False),
        (AutomationError("It failed."), "FAILED", True),
    ],
)
def test_the_type_of_an_error_decides_whether_it_is_retried(
    error: AutomationError, code: str, *, is_retried: bool
) -> None:
    end = end_of_error(error)
    assert (end.status, end.error_code, end.error, end.result) == ("failed", code, str(error), None)
    assert is_retryable(end.error_code) is is_retried


def test_error_text_names_fields_and_hides_secrets() -> None:
    error = InvalidInputError(
        "Refused", (("payload.a", "is wrong"), ("payload.b", "token=hunter2hunter2"))
    )
    assert end_of_error(error).error == "Refused: payload.a: is wrong; payload.b: token=[masked]"
