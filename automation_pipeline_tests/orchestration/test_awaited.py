"""A step that was sent away: brokers that are away, messages that are lost, runs that end without it."""

from collections.abc import Callable

import pytest
from celery.exceptions import TaskRevokedError

from automation_pipeline.orchestration.awaited import Awaited


class AwayError(Exception):
    """The broker does not answer."""


class Result:
    def __init__(self, answer: object = None) -> None:
        self.answer, self.is_away, self.revoked = answer, False, False

    def ready(self) -> bool:
        if self.is_away:
            raise AwayError
        return self.answer is not None

    def get(self) -> object:
        return self.answer

    def revoke(self) -> None:
        self.ready()
        self.revoked = True


class Outlook:
    is_over = False

    def __init__(self) -> None:
        self.lost: list[str] = []

    def is_lost(self, step_key: str) -> bool:
        return bool(self.lost) and self.lost.pop() == step_key


class Post:
    """Hands out these results, one a message; None: the broker is away."""

    def __init__(self, *results: Result | None) -> None:
        self.results, self.sent = list(results), 0

    def __call__(self) -> Result:
        result = self.results.pop(0)
        if result is None:
            raise AwayError
        self.sent += 1
        return result


def awaited(send: Callable[[], object], outlook: Outlook | None = None) -> Awaited:
    return Awaited("work[1]", send, outlook or Outlook(), (AwayError,))  # type: ignore[arg-type]


def test_a_result_is_waited_for_and_taken() -> None:
    result = Result()
    step = awaited(Post(result))
    assert not step.ready()
    result.answer = ["event"]
    assert step.ready()
    assert not step.is_taken
    assert (step.get(), step.is_taken) == (["event"], True)


def test_a_broker_that_is_away_when_the_step_is_sent_gets_it_later() -> None:
    post = Post(None, None, Result(["event"]))
    step = awaited(post)
    assert not step.ready()
    assert step.ready()
    assert (step.get(), post.sent) == (["event"], 1)


def test_a_broker_that_is_away_later_is_no_answer() -> None:
    result = Result(["event"])
    step = awaited(Post(result))
    result.is_away = True
    assert not step.ready()
    step.revoke()
    result.is_away = False
    assert step.ready()


def test_a_lost_message_is_sent_again_and_either_answers() -> None:
    first, second, outlook = Result(), Result(), Outlook()
    post = Post(first, second)
    step = awaited(post, outlook)
    assert not step.ready()
    outlook.lost.append("work[1]")
    assert not step.ready()
    assert post.sent == 2
    first.answer = ["late after all"]
    assert step.ready()
    assert step.get() == ["late after all"]
    step.revoke()
    assert (first.revoked, second.revoked) == (True, True)


def test_when_the_run_has_ended_nothing_is_waited_for() -> None:
    outlook = Outlook()
    step = awaited(Post(Result()), outlook)
    outlook.is_over = True
    assert step.ready()
    with pytest.raises(TaskRevokedError, match=r"The run has ended before work\[1\]"):
        step.get()
