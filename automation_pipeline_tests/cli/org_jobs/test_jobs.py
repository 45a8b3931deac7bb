"""Jobs of organisations from the command line: shown, requested, followed."""

import pytest

from automation_pipeline.cli.progress import LaunchWait
from automation_pipeline.core.launching import NotStartedError
from automation_pipeline.org_jobs.commands.jobs import follow_job
from automation_pipeline.org_jobs.models.jobs import attempt_failed, attempt_succeeded
from automation_pipeline_tests.cli.org_jobs.counter import Counter
from automation_pipeline_tests.cli.terminal import during_pauses, time_passes
from automation_pipeline_tests.conftest import StandingClock


def test_jobs_can_be_listed_and_filtered(counter: Counter) -> None:
    counter.org("globex")
    server = counter.server()
    restart = counter.json(
        "create", "--type", "SERVER_RESTART", "--server", server, "--org", "acme"
    )["job_id"]
    call, other = counter.job("--org", "acme"), counter.job("--org", "globex")
    counter.do(call, attempt_succeeded())

    def listed(*options: str) -> list[str]:
        return [job["id"] for job in counter.json("list", *options)["jobs"]]

    assert listed() == [other, call, restart]
    assert listed("--org", "acme") == [call, restart]
    assert listed("--status", "success") == [call]
    assert listed("--type", "SERVER_RESTART") == listed("--server", server) == [restart]
    assert listed("--limit", "1", "--offset", "1") == [call]
    result = counter.printed("list", "--limit", "1")
    assert "globex HTTPS_CALL waiting" in result
    assert result.endswith("There are more rows: --offset 1 shows the next page.")


def test_a_job_shows_the_status_of_each_attempt(counter: Counter) -> None:
    job_id = counter.job("--retries", "1", "--backoff-ms", "3600000")
    assert counter.printed("show", job_id).endswith(
        "Follow it: `automation org-jobs watch 1`; stop it: `automation org-jobs cancel 1`."
    )
    counter.begin(job_id, progress={"percent": 40.0, "message": "Copying [it]"})
    assert "status running, attempt 1 of 2, 40 %: Copying [it]" in counter.printed("show", job_id)
    counter.end(job_id, attempt_failed("Connection [refused]", "UNREACHABLE"))
    shown = counter.printed("show", job_id)
    assert "waits for a retry, 20" in shown
    assert "agent:h UNREACHABLE: Connection [refused] (tried again 20" in shown
    counter.do(job_id, attempt_failed("Gone", "NOT_FOUND"))
    shown = counter.printed("show", job_id)
    assert "trouble NOT_FOUND: Gone" in shown
    assert shown.endswith("Retry it: `automation org-jobs retry 1`.")
    log = counter.json("log", job_id)["log"]
    assert [(move["fromState"], move["toState"]) for move in log] == [
        ("running", "failed"), ("failed", "pending"), ("running", "failed")
    ]  # fmt: skip
    assert "running -> failed by worker" in counter.printed("log", job_id)


def test_a_job_can_be_cancelled(counter: Counter) -> None:
    document = counter.json("cancel", counter.job(), "--reason", "Wrong [one]")
    assert document["status"] == "cancelled"
    counter.begin(counter.job())
    assert "asked to stop" in counter.printed("cancel", "2", "--reason", "Wrong [one]")
    shown = counter.printed("show", "2")
    assert "by cli:ada: Wrong [one]" in shown
    assert (
        counter.printed("cancel", "2", "--at-once")
        == "Job 2, HTTPS_CALL: cancelled, attempt 1 of 3."
    )
    counter.do(counter.job(), attempt_succeeded())
    assert "there is nothing to cancel" in counter.refused("cancel", "3")


def test_a_job_can_be_retried(counter: Counter, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = counter.job()
    counter.do(job_id, attempt_failed("Gone", "NOT_FOUND"))
    document = counter.json("retry", job_id)
    assert (document["status"], len(document["job"]["runs"])) == ("pending", 2)
    during_pauses(monkeypatch, lambda: counter.do(job_id, attempt_succeeded({"lines": 3})))
    assert counter.json("watch", job_id)["status"] == "success"
    assert 'result {"lines": 3}' in counter.printed("show", job_id)
    assert counter.refused("retry", job_id)


def test_a_job_can_be_created_and_awaited(
    counter: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = counter.server()
    payload = ("--payload", '{"command": "save-all"}', "--priority", "1", "--retries", "0")
    during_pauses(monkeypatch, lambda: counter.do("1", attempt_succeeded()))
    document = counter.json("create", "--type", "RCON", "--server", server, *payload, "--wait")
    job = document["job"]
    assert (document["status"], job["priority"], job["retryPolicy"]["maxRetries"]) == (
        "success",
        1,
        0,
    )
    result = counter.printed("create", "--type", "RCON", "--server", server, *payload)
    assert result == "Job 2 is asked for: `automation org-jobs watch 2` follows it."
    fault = counter.refused("create", "--type", "RCON", *payload, code=2)
    assert "serverInstanceId: " in fault


def test_queues_show_waiting_and_running_jobs(counter: Counter) -> None:
    counter.begin(counter.job())
    counter.job()
    counter.org("globex")
    counter.json("orgs", "suspend", "globex")
    document = counter.json("queues")["queues"]
    assert [(one["orgId"], one["waiting"], one["running"]) for one in document] == [
        ("acme", 1, 1),
        ("globex", 0, 0),
    ]
    assert [one["orgId"] for one in counter.json("queues", "--org", "acme")["queues"]] == ["acme"]
    result = counter.printed("queues")
    assert "acme in service 1 0 0 1 10" in result
    assert "globex suspended 0 0 0 0 10" in result


def test_job_types_show_their_performer_and_payload_schema(bare: Counter) -> None:
    document = {one["name"]: one for one in bare.json("types")["types"]}
    assert document["HTTPS_CALL"]["performer"] == "service"
    assert "url" in document["HTTPS_CALL"]["payloadSchema"]["properties"]
    result = bare.printed("types")
    assert "SERVER_RESTART agent yes 24 h" in result
    assert "SAVE_LIST agent no 3 min" in result


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
def test_ctrl_c_prints_that_the_job_continues(
    counter: Counter, monkeypatch: pytest.MonkeyPatch, flags: list[str]
) -> None:
    during_pauses(monkeypatch)
    ended = counter.run("watch", counter.job(), *flags)
    assert (ended.code, ended.err) == (130, GOES_ON)
    assert counter.json("show", "1")["status"] == "pending"


def test_the_command_prints_why_a_job_does_not_start(
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


def test_a_service_job_does_not_start_without_a_daemon(
    counter: Counter, clock: StandingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter.job()
    assert why(monkeypatch, clock) == "NO_DAEMON"
    counter.begin("1")
    assert why(monkeypatch, clock) is None
