"""The loop between attempts: how often, how long between, and what is not attempted again. Nobody
sleeps here."""

import asyncio
from random import Random

import pytest

from automation_pipeline.core.errors import (
    AutomationError,
    NotFoundError,
    PermanentError,
    TransientError,
)
from automation_pipeline.core.retry import Backoff, Retrying
from automation_pipeline_tests.tables import every_case

BACKOFF = Backoff(base_seconds=1, multiplier=2, cap_seconds=15)


class Script:
    """Answers call by call: an error is raised, anything else returned. `waits` are the sleeps
    asked for."""

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
def test_a_transient_failure_is_attempted_again_after_its_wait(
    answers: list[str | Exception], waits: list[float]
) -> None:
    script = Script(*answers)
    assert script.run() == "good"
    assert script.waits == waits


def test_the_last_attempt_raises_what_it_met_and_nobody_waits_after_it() -> None:
    script, last = Script(busy(), busy(), TransientError("still busy"), "never asked"), "still busy"
    with pytest.raises(TransientError, match=last):
        script.run()
    assert (script.left, script.waits) == (["never asked"], [1, 2])


def test_one_attempt_is_one_call() -> None:
    script = Script(busy(), "never asked")
    with pytest.raises(TransientError):
        script.run(attempts=1)
    assert (script.left, script.waits) == (["never asked"], [])


@every_case(
    "error", [PermanentError("no"), NotFoundError("no"), AutomationError("no"), ValueError("bug")]
)
def test_whatever_is_not_transient_is_not_attempted_again(error: Exception) -> None:
    script = Script(error, "never asked")
    with pytest.raises(type(error)):
        script.run()
    assert (script.left, script.waits) == (["never asked"], [])


def test_a_wait_that_is_too_long_goes_up_at_once_and_says_how_long() -> None:
    script = Script(busy(61), "never asked")
    with pytest.raises(TransientError) as caught:
        script.run()
    assert (caught.value.retry_after_seconds, script.left, script.waits) == (
        61,
        ["never asked"],
        [],
    )


def test_the_waits_are_spread_by_the_jitter_of_the_back_off() -> None:
    script = Script(busy(), busy(), "good")
    script.run(backoff=Backoff(base_seconds=1, cap_seconds=15, jitter=0.2))
    assert script.waits[0] == pytest.approx(1, abs=0.2)
    assert script.waits[1] == pytest.approx(2, abs=0.4)
    assert script.waits != [1, 2]
