"""Following a job: Ctrl-C leaves it at work; the command says why a job does not begin."""

import pytest

from automation_pipeline.cli.progress import LaunchWait
from automation_pipeline.core.launching import NotStartedError
from automation_pipeline.org_jobs.commands.jobs import follow_job
from automation_pipeline_tests.cli.org_jobs.counter import Counter
from automation_pipeline_tests.cli.terminal import meanwhile, time_passes
from automation_pipeline_tests.conftest import StandingClock

GOES_ON = "Job 1 continues. `automation org-jobs show 1` shows its status.\n"


def why(monkeypatch: pytest.MonkeyPatch, clock: StandingClock) -> str | None:
    """The code by which the command stops to follow job 1; None if it goes on."""
    no_daemon = NotStartedError("NO_DAEMON", "")
    with monkeypatch.context() as patch:
        patch.setattr(LaunchWait, "_local_obstacle", lambda _wait, _waited: no_daemon)
        time_passes(patch, clock, 35)
        try:
            follow_job(1, quiet=True)
        except NotStartedError as error:
            return error.code
        except KeyboardInterrupt:
            return None
    return "ended"


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_ctrl_c_says_that_the_job_goes_on(
    counter: Counter, monkeypatch: pytest.MonkeyPatch, flags: list[str]
) -> None:
    meanwhile(monkeypatch)
    ended = counter.run("watch", counter.job(), *flags)
    assert (ended.code, ended.err) == (130, GOES_ON)
    assert counter.json("show", "1")["status"] == "pending"


def test_the_command_says_why_a_job_does_not_begin(
    counter: Counter, clock: StandingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter.json("create", "--type", "SERVER_RESTART", "--server", counter.server())
    assert why(monkeypatch, clock) == "NO_AGENT"
    counter.json("orgs", "update", "acme", "--max-running", "1")
    counter.begin(counter.job())
    assert why(monkeypatch, clock) is None, "it waits in its queue"
    counter.json("orgs", "update", "acme", "--max-running", "9")
    counter.json("orgs", "suspend", "acme")
    assert why(monkeypatch, clock) == "SUSPENDED"


def test_without_a_daemon_a_job_of_this_system_does_not_begin(
    counter: Counter, clock: StandingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter.job()
    assert why(monkeypatch, clock) == "NO_DAEMON"
    counter.begin("1")
    assert why(monkeypatch, clock) is None
