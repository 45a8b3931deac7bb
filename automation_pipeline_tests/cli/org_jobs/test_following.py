"""Following a job: Ctrl-C leaves it at work, and what does not begin is wondered about once."""

import threading
from datetime import timedelta
from types import SimpleNamespace
from typing import cast

import pytest

from automation_pipeline.cli.desk.chosen import desk
from automation_pipeline.cli.desk.ports import Desk
from automation_pipeline.cli.following import NO_DAEMON
from automation_pipeline.cli.org_jobs.following import NO_AGENT, follow_job
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


def watched(clock: StandingClock, capsys: pytest.CaptureFixture[str], *, quiet: bool = False) -> str:
    """What a person sees who watches job 1 for some time."""
    capsys.readouterr()
    passing = cast("Desk", SimpleNamespace(clock=clock, org_jobs=desk().org_jobs))
    with pytest.raises(KeyboardInterrupt):
        follow_job(1, passing, pause=Passing(clock, 35), quiet=quiet)
    said = capsys.readouterr()
    assert said.err == GOES_ON
    return " ".join(said.out.split())


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_ctrl_c_says_that_the_job_goes_on(counter: Counter, monkeypatch: pytest.MonkeyPatch, flags: list[str]) -> None:
    meanwhile(monkeypatch)
    ended = counter.run("watch", counter.job(), *flags)
    assert (ended.code, ended.err) == (130, GOES_ON)
    assert counter.json("show", "1")["status"] == "pending"


def test_what_does_not_begin_is_wondered_about_once(
    counter: Counter, clock: StandingClock, capsys: pytest.CaptureFixture[str]
) -> None:
    counter.job()
    assert watched(clock, capsys).count(NO_DAEMON) == 1
    assert watched(clock, capsys, quiet=True) == ""
    counter.begin("1")
    assert NO_DAEMON not in watched(clock, capsys)


def test_why_it_waits_is_told_as_it_is(
    counter: Counter, clock: StandingClock, capsys: pytest.CaptureFixture[str]
) -> None:
    counter.json("create", "--type", "SERVER_RESTART", "--server", counter.server())
    assert NO_AGENT in watched(clock, capsys)
    counter.json("orgs", "update", "acme", "--max-running", "1")
    counter.begin(counter.job())
    assert "It waits in its queue: 1 jobs of acme are at work" in watched(clock, capsys)
    counter.json("orgs", "suspend", "acme")
    assert "Organisation acme is suspended" in watched(clock, capsys)
