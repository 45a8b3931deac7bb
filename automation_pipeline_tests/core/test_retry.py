"""Back-off, Retry-After and the retry loop."""

import asyncio
import sys
from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.core.errors import (
    AutomationError,
    NotFoundError,
    PermanentError,
    TransientError,
)
from automation_pipeline.core.retry import (
    Backoff,
    Retrying,
    is_transient_status,
    retry_after_seconds,
)
from automation_pipeline_tests.cases import every_case

NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)

RUNNER = Backoff(base_seconds=2, cap_seconds=64)
RUNNER_RATE_LIMIT = Backoff(base_seconds=16, cap_seconds=64)
JOB_FIXED = Backoff(base_seconds=2, multiplier=1, cap_seconds=3600)
JOB_EXPONENTIAL = Backoff(base_seconds=2, cap_seconds=3600)
JOB_SLOWEST = Backoff(base_seconds=3600, cap_seconds=3600)
JOB_AT_ONCE = Backoff(base_seconds=0, cap_seconds=3600)
ENRICHMENT = Backoff(base_seconds=0.25, cap_seconds=1)


@every_case(
    ("backoff", "waits"),
    [
        (RUNNER, [2, 4, 8, 16, 32, 64, 64]),
        (RUNNER_RATE_LIMIT, [16, 32, 64, 64]),
        (JOB_FIXED, [2, 2, 2]),
        (JOB_EXPONENTIAL, [2, 4, 8, 16]),
        (Backoff(base_seconds=1, cap_seconds=3600), [1, 2, 4, 8, 16]),
        (JOB_SLOWEST, [3600, 3600]),
        (JOB_AT_ONCE, [0, 0, 0]),
        (ENRICHMENT, [0.25, 0.5]),
    ],
)
def test_the_delays_match_the_contract(backoff: Backoff, waits: list[float]) -> None:
    assert [backoff.delay(n, Random(1)) for n in range(1, len(waits) + 1)] == waits


@every_case(
    ("base", "n", "low", "high"),
    [
        (2, 1, 1.6, 2.4),
        (2, 2, 3.2, 4.8),
        (2, 3, 6.4, 9.6),
        (2, 6, 51.2, 64),
        (16, 1, 12.8, 19.2),
        (16, 3, 51.2, 64),
    ],
)
def test_jitter_varies_the_delay_by_twenty_percent_up_to_the_cap(
    base: float, n: int, low: float, high: float
) -> None:
    backoff, random = Backoff(base_seconds=base, cap_seconds=64, jitter=0.2), Random(7)
    waits = [backoff.delay(n, random) for _ in range(500)]
    span = high - low
    assert low <= min(waits) < low + span / 10
    assert high - span / 10 < max(waits) <= high


@given(
    base=st.floats(0, 1e300),
    cap=st.floats(0, 1e6),
    multiplier=st.floats(1, 1e6),
    jitter=st.floats(0, 1),
    n=st.integers(1, sys.maxsize),
    seed=st.integers(),
)
def test_a_delay_is_between_zero_and_the_cap(
    base: float, cap: float, multiplier: float, jitter: float, n: int, seed: int
) -> None:
    backoff = Backoff(base_seconds=base, cap_seconds=cap, multiplier=multiplier, jitter=jitter)
    assert 0 <= backoff.delay(n, Random(seed)) <= cap


def test_the_same_seed_gives_the_same_delay() -> None:
    backoff = Backoff(base_seconds=2, cap_seconds=64, jitter=0.2)
    assert backoff.delay(3, Random(42)) == backoff.delay(3, Random(42))


@every_case(
    "numbers",
    [
        {"base_seconds": -1},
        {"base_seconds": float("nan")},
        {"cap_seconds": float("inf")},
        {"multiplier": 0.5},
        {"jitter": -0.1},
        {"jitter": 1.1},
    ],
)
def test_invalid_back_off_parameters_are_rejected(numbers: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="back-off"):
        Backoff(**{"base_seconds": 2, "cap_seconds": 64, **numbers})


def test_retries_are_counted_from_one() -> None:
    with pytest.raises(ValueError, match="from 1"):
        RUNNER.delay(0, Random(1))


@every_case(
    ("header", "seconds"),
    [
        ("120", 120.0),
        ("2.0", 2.0),
        (" 2.5 ", 2.5),
        ("0", 1.0),
        ("0.2", 1.0),
        ("Mon, 04 May 2026 12:00:30 GMT", 30.0),
        ("Monday, 04-May-26 12:01:00 GMT", 60.0),
        ("Mon May  4 12:02:00 2026", 120.0),
        ("Mon, 04 May 2026 14:00:30 +0200", 30.0),
        ("Mon, 04 May 2026 11:59:00 GMT", 1.0),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 1.0),
    ],
)
def test_a_readable_retry_after_gives_at_least_one_second(header: str, seconds: float) -> None:
    assert retry_after_seconds(header, NOW) == seconds


@every_case(
    "header",
    [
        None,
        "",
        " ",
        "soon",
        "nan",
        "inf",
        "-5",
        "+5",
        "1e3",
        "1,5",
        "0x10",
        "٣",
        "9" * 10,
        "9" * 400,
        "Mon, 99 May 2026 12:00:00 GMT",
    ],
)
def test_an_unreadable_retry_after_is_none(header: str | None) -> None:
    assert retry_after_seconds(header, NOW) is None


@given(
    st.one_of(
        st.text(),
        st.lists(
            st.sampled_from(
                [
                    "Mon,",
                    "04",
                    "May",
                    "2026",
                    "9999",
                    "12",
                    ":",
                    "GMT",
                    "+0200",
                    "-9999",
                    "9" * 20,
                    "-",
                    ".",
                ]
            )
        ).map(" ".join),
    )
)
def test_any_retry_after_header_is_parsed_without_error(header: str) -> None:
    seconds = retry_after_seconds(header, NOW)
    assert seconds is None or (seconds >= 1 and NOW + timedelta(seconds=seconds) > NOW)


WITH_JITTER = Backoff(base_seconds=2, cap_seconds=60, jitter=0.25)
# Name; retry number; Retry-After; shortest and longest delay, without and with jitter.
WAITS = (
    ("no Retry-After", 2, None, (4, 4), (3, 5)),
    ("less than the back-off", 3, 1.0, (8, 8), (6, 10)),
    ("zero", 1, 0.0, (2, 2), (1.5, 2.5)),
    ("more than the back-off", 1, 30.0, (30, 30), (30, 30.5)),
    ("more than the cap", 9, 90.0, (90, 90), (90, 105)),
)


def test_the_larger_of_retry_after_and_back_off_applies_with_jitter() -> None:
    wrong = []
    for name, n, retry_after, plain, spread in WAITS:
        waited = Backoff(base_seconds=2, cap_seconds=60).wait(n, retry_after, Random(1))
        waits = [WITH_JITTER.wait(n, retry_after, Random(seed)) for seed in range(200)]
        is_spread = len(set(waits)) > 100
        if waited != plain[0] or min(waits) < spread[0] or max(waits) > spread[1] or not is_spread:
            wrong.append((name, waited, min(waits), max(waits)))
    assert wrong == []


BACKOFF = Backoff(base_seconds=1, multiplier=2, cap_seconds=15)


class Script:
    """Scripted answers: an error is raised, anything else is returned. `waits` records the sleeps."""

    def __init__(self, *answers: str | Exception) -> None:
        self.left = list(answers)
        self.waits: list[float] = []

    async def call(self) -> str:
        answer = self.left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)

    def run(self, attempts: int = 3, backoff: Backoff = BACKOFF) -> str:
        retrying = Retrying(attempts=attempts, backoff=backoff, random=Random(1), sleep=self.sleep)
        return asyncio.run(retrying.call(self.call))


def busy(retry_after: float | None = None) -> TransientError:
    return TransientError("busy", retry_after_seconds=retry_after)


@every_case(
    ("answers", "waits"),
    [
        (["good"], []),
        ([busy(), "good"], [1]),
        ([busy(), busy(), "good"], [1, 2]),
        ([busy(4), "good"], [4]),
        ([busy(4), busy(), "good"], [4, 2]),
        ([busy(60), "good"], [60]),
    ],
)
def test_a_transient_error_is_retried_after_its_delay(
    answers: list[str | Exception], waits: list[float]
) -> None:
    script = Script(*answers)
    assert script.run() == "good"
    assert script.waits == waits


def test_the_last_attempt_raises_its_error_without_a_delay() -> None:
    script, last = (
        Script(busy(), busy(), TransientError("still busy"), "never called"),
        "still busy",
    )
    with pytest.raises(TransientError, match=last):
        script.run()
    assert (script.left, script.waits) == (["never called"], [1, 2])


def test_a_single_attempt_makes_one_call() -> None:
    script = Script(busy(), "never called")
    with pytest.raises(TransientError):
        script.run(attempts=1)
    assert (script.left, script.waits) == (["never called"], [])


@every_case(
    "error", [PermanentError("no"), NotFoundError("no"), AutomationError("no"), ValueError("bug")]
)
def test_other_errors_are_not_retried(error: Exception) -> None:
    script = Script(error, "never called")
    with pytest.raises(type(error)):
        script.run()
    assert (script.left, script.waits) == (["never called"], [])


def test_a_retry_after_that_is_too_long_is_raised_immediately() -> None:
    script = Script(busy(61), "never called")
    with pytest.raises(TransientError) as caught:
        script.run()
    assert (caught.value.retry_after_seconds, script.left, script.waits) == (
        61,
        ["never called"],
        [],
    )


def test_retry_delays_use_the_jitter_of_the_back_off() -> None:
    script = Script(busy(), busy(), "good")
    script.run(backoff=Backoff(base_seconds=1, cap_seconds=15, jitter=0.2))
    assert script.waits[0] == pytest.approx(1, abs=0.2)
    assert script.waits[1] == pytest.approx(2, abs=0.4)
    assert script.waits != [1, 2]


def test_only_temporary_statuses_are_transient() -> None:
    statuses = (200, 400, 401, 404, 407, 408, 409, 424, 425, 426, 428, 429, 499, 500, 503, 599)
    transient = [status for status in statuses if is_transient_status(status)]
    assert transient == [408, 425, 429, 500, 503, 599]
