"""Following a job: Ctrl-C leaves it at work; the command says why a job does not begin."""

import threading
from datetime import timedelta
from types import SimpleNamespace
from typing import cast

import pytest

from automation_pipeline.cli.client.base import open_client
from automation_pipeline.cli.client.ports import Client
from automation_pipeline.core.launching import NotStartedError
from automation_pipeline.org_jobs.commands.jobs import follow_job
from automation_pipeline_tests.cli.org_jobs.counter import Counter, meanwhile
from automation_pipeline_tests.conftest import StandingClock

GOES_ON = "Job 1 goes on without us: `automation org-jobs show 1` tells how it stands.\n"


class Passing(threading.Event):
    """Time passes and nobody sleeps, until somebody presses Ctrl-C."""

    def __init__(self, clock: StandingClock, waits: int) -> None:
        super().__init__()
        self._clock, self._left = clock, waits

    def wait(self, timeout: float | None = None) -> bool:
        if self._left == 0:
            raise KeyboardInterrupt
        self._left -= 1
        self._clock.pass_time(timedelta(seconds=timeout or 0))
        return False


def why(clock: StandingClock) -> str | None:
    """The code by which the command stops to follow job 1; None if it goes on."""
    launching = SimpleNamespace(
        probe=lambda: None, missing=lambda _keys, _waited: NotStartedError("NO_DAEMON", "")
    )
    passing = cast(
        "Client", SimpleNamespace(clock=clock, org_jobs=open_client().org_jobs, launching=launching)
    )
    try:
        follow_job(1, passing, pause=Passing(clock, 35), quiet=True)
    except NotStartedError as error:
        return error.code
    except KeyboardInterrupt:
        return None


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_ctrl_c_says_that_the_job_goes_on(
    counter: Counter, monkeypatch: pytest.MonkeyPatch, flags: list[str]
) -> None:
    meanwhile(monkeypatch)
    ended = counter.run("watch", counter.job(), *flags)
    assert (ended.code, ended.err) == (130, GOES_ON)
    assert counter.json("show", "1")["status"] == "pending"


def test_the_command_says_why_a_job_does_not_begin(counter: Counter, clock: StandingClock) -> None:
    counter.json("create", "--type", "SERVER_RESTART", "--server", counter.server())
    assert why(clock) == "NO_AGENT"
    counter.json("orgs", "update", "acme", "--max-running", "1")
    counter.begin(counter.job())
    assert why(clock) is None, "it waits in its queue"
    counter.json("orgs", "update", "acme", "--max-running", "9")
    counter.json("orgs", "suspend", "acme")
    assert why(clock) == "SUSPENDED"


def test_without_a_daemon_a_job_of_this_system_does_not_begin(
    counter: Counter, clock: StandingClock
) -> None:
    counter.job()
    assert why(clock) == "NO_DAEMON"
    counter.begin("1")
    assert why(clock) is None
