"""Tests of job commands: show, create, and follow jobs."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from automation_pipeline.cli.progress import LaunchWait
from automation_pipeline.core.launching import NotStartedError
from automation_pipeline.org_jobs.commands.jobs import follow_job
from automation_pipeline.org_jobs.models.jobs import RetryPolicy, attempt_failed, attempt_succeeded
from automation_pipeline.org_jobs.tables import AttemptRow
from automation_pipeline_tests.cli.org_jobs.commands import OrgJobsCommands
from automation_pipeline_tests.cli.terminal import during_pauses, time_passes
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.org_jobs.data import CHANGING, SERVICE


def test_jobs_can_be_listed_and_filtered(org_jobs: OrgJobsCommands) -> None:
    org_jobs.org("globex")
    server = org_jobs.server()
    restart = org_jobs.json(
        "create", "--type", "SERVER_RESTART", "--server", server, "--org", "acme"
    )["job_id"]
    call, other = org_jobs.job("--org", "acme"), org_jobs.job("--org", "globex")
    org_jobs.run_job(call, attempt_succeeded())

    def listed(*options: str) -> list[str]:
        return [job["id"] for job in org_jobs.json("list", *options)["jobs"]]

    assert listed() == [other, call, restart]
    assert listed("--org", "acme") == [call, restart]
    assert listed("--status", "success") == [call]
    assert listed("--type", "SERVER_RESTART") == listed("--server", server) == [restart]
    assert listed("--limit", "1", "--offset", "1") == [call]
    result = org_jobs.printed("list", "--limit", "1")
    assert "globex HTTPS_CALL waiting" in result
    assert result.endswith("There are more rows: --offset 1 shows the next page.")


def test_a_job_shows_the_status_of_each_attempt(org_jobs: OrgJobsCommands) -> None:
    job_id = org_jobs.job("--retries", "1", "--backoff-ms", "3600000")
    assert org_jobs.printed("show", job_id).endswith(
        "Follow it: `automation org-jobs watch 1`; stop it: `automation org-jobs cancel 1`."
    )
    org_jobs.start_job(job_id, progress={"percent": 40.0, "message": "Copying [it]"})
    assert "status running, attempt 1 of 2, 40 %: Copying [it]" in org_jobs.printed("show", job_id)
    org_jobs.end_job(job_id, attempt_failed("Connection [refused]", "UNREACHABLE"))
    shown = org_jobs.printed("show", job_id)
    assert "waits for a retry, 20" in shown
    assert "agent:h UNREACHABLE: Connection [refused] (tried again 20" in shown
    org_jobs.run_job(job_id, attempt_failed("Gone", "NOT_FOUND"))
    shown = org_jobs.printed("show", job_id)
    assert "error NOT_FOUND: Gone" in shown
    assert shown.endswith("Retry it: `automation org-jobs retry 1`.")
    log = org_jobs.json("log", job_id)["log"]
    assert [(move["fromState"], move["toState"]) for move in log] == [
        ("running", "failed"), ("failed", "pending"), ("running", "failed")
    ]  # fmt: skip
    assert "running -> failed by worker" in org_jobs.printed("log", job_id)


MAY = datetime(2026, 5, 1, 8, 30, 15, tzinfo=UTC)
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
RUNNING = {
    "status": "running", "started_at": MAY, "deadline_at": MAY + DAY, "attempt_no": 2, "lease_owner": "agent:box",
    "progress": {"percent": 40.0, "message": "Copying\n[it]"}, "progress_at": MAY + MINUTE,
    "cancel_requested_at": MAY + 2 * MINUTE, "cancelled_by": "user:1", "cancel_reason": "No\nneed",
}  # fmt: skip
ENDED = {"started_at": MAY, "finished_at": MAY + MINUTE}
NEXT_STEPS = "Follow it: `automation org-jobs watch 1`; stop it: `automation org-jobs cancel 1`."
CREATED = "created 2026-05-01 08:30:15 UTC by user:1"
STARTED = "started 2026-05-01 08:30:15 UTC"


@pytest.mark.parametrize(
    ("job", "run", "expected", "listed"),
    [
        (
            {"payload": {"a": 1}, "scheduled_for": MAY, "of_type": CHANGING},
            RUNNING,
            ("job 1 SERVER_RESTART organisation acme status running, attempt 2 of 3, asked to stop, 40 %: Copying [it] "
            f'payload {{"a": 1}} due time 2026-05-01 08:30:15 UTC {CREATED} {STARTED} '
            "deadline 2026-05-02 08:30:15 UTC last report 2026-05-01 08:31:15 UTC "
            f"cancel requested 2026-05-01 08:32:15 UTC by user:1: No need {NEXT_STEPS}"),
            "running, attempt 2 of 3, asked to stop, 40 %: Copying [it] 2026-05-01 08:30 user:1 No need",
        ),
        (
            {},
            {"lease_owner": "worker"},
            (f"job 1 HTTPS_CALL organisation acme status claimed, not started {CREATED} "
            f"expires 2026-05-02 08:30:15 UTC {NEXT_STEPS}"),
            "claimed, not started 2026-05-01 08:30 user:1",
        ),
        (
            {},
            {"attempt_no": 2},
            (f"job 1 HTTPS_CALL organisation acme status waiting, attempt 2 of 3 {CREATED} "
            f"expires 2026-05-02 08:30:15 UTC {NEXT_STEPS}"),
            "waiting, attempt 2 of 3 2026-05-01 08:30 user:1",
        ),
        (
            {"retry": RetryPolicy(max_retries=0)},
            {"status": "running", "started_at": MAY, "progress": {"percent": 0}},
            f"job 1 HTTPS_CALL organisation acme status running, 0 % {CREATED} {STARTED} {NEXT_STEPS}",
            "running, 0 % 2026-05-01 08:30 user:1",
        ),
        (
            {},
            {"status": "success", **ENDED, "result": {"n": [1]}, "log_ref": "/log/1"},
            (f"job 1 HTTPS_CALL organisation acme status success, attempt 1 of 3 {CREATED} {STARTED} "
            'ended 2026-05-01 08:31:15 UTC result {"n": [1]} log /log/1'),
            "success, attempt 1 of 3 2026-05-01 08:30 user:1",
        ),
        (
            {},
            {"status": "failed", **ENDED, "error_code": "GONE", "error": "It is\ngone"},
            (f"job 1 HTTPS_CALL organisation acme status failed, attempt 1 of 3 {CREATED} {STARTED} "
            "ended 2026-05-01 08:31:15 UTC error GONE: It is gone Retry it: `automation org-jobs retry 1`."),
            "failed, attempt 1 of 3 2026-05-01 08:30 user:1 GONE: It is gone",
        ),
        (
            {},
            {"status": "cancelled", "finished_at": MAY, "cancelled_by": "user:1", "cancel_requested_at": MAY},
            (f"job 1 HTTPS_CALL organisation acme status cancelled {CREATED} "
            "cancel requested 2026-05-01 08:30:15 UTC by user:1 ended 2026-05-01 08:30:15 UTC "
            "Retry it: `automation org-jobs retry 1`."),
            "cancelled 2026-05-01 08:30 user:1",
        ),
    ],
)  # fmt: skip
def test_a_stored_job_is_shown_in_full(
    org_jobs: OrgJobsCommands, job: dict[str, Any], run: dict[str, Any], expected: str, listed: str
) -> None:
    data = org_jobs.data
    job_id = data.job("acme", **({"of_type": SERVICE} | job), run=run)
    data.set_job(job_id, created_at=MAY, expires_at=MAY + DAY)
    assert org_jobs.printed("show", "1") == expected
    assert org_jobs.printed("list").endswith(listed)


def test_the_attempts_of_a_job_are_listed(org_jobs: OrgJobsCommands) -> None:
    data = org_jobs.data
    run_id = data.run_row(data.job("acme")).id
    ended = {"org_id": "acme", "status": "failed", "finished_at": MAY + MINUTE}
    first = {
        "started_at": MAY,
        "owner": "agent:box",
        "error_code": "DISK_FULL",
        "error": "Full\n[1]",
    }
    first |= {"retry_at": MAY + 2 * MINUTE, "late_report": {"a": 1}}
    with data.database.transaction() as session:
        session.add(AttemptRow(run_id=run_id, attempt_no=1, **ended, **first))
        session.add(AttemptRow(run_id=run_id, attempt_no=2, **ended))
    _, _, attempts = org_jobs.printed("show", "1").partition(" run attempt ")
    assert attempts.partition(" Follow it")[0] == (
        "started (UTC) ended (UTC) status by why "
        "1 1 2026-05-01 08:30:15 2026-05-01 08:31:15 failed agent:box "
        "DISK_FULL: Full [1] (tried again 2026-05-01 08:32 UTC); a late report exists "
        "1 2 2026-05-01 08:31:15 failed"
    )


def test_a_job_can_be_cancelled(org_jobs: OrgJobsCommands) -> None:
    document = org_jobs.json("cancel", org_jobs.job(), "--reason", "Wrong [one]")
    assert document["status"] == "cancelled"
    org_jobs.start_job(org_jobs.job())
    assert "asked to stop" in org_jobs.printed("cancel", "2", "--reason", "Wrong [one]")
    shown = org_jobs.printed("show", "2")
    assert "by cli:ada: Wrong [one]" in shown
    assert (
        org_jobs.printed("cancel", "2", "--at-once")
        == "Job 2, HTTPS_CALL: cancelled, attempt 1 of 3."
    )
    org_jobs.run_job(org_jobs.job(), attempt_succeeded())
    assert "there is nothing to cancel" in org_jobs.refused("cancel", "3")


def test_a_job_can_be_retried(org_jobs: OrgJobsCommands, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = org_jobs.job()
    org_jobs.run_job(job_id, attempt_failed("Gone", "NOT_FOUND"))
    document = org_jobs.json("retry", job_id)
    assert (document["status"], len(document["job"]["runs"])) == ("pending", 2)
    during_pauses(monkeypatch, lambda: org_jobs.run_job(job_id, attempt_succeeded({"lines": 3})))
    assert org_jobs.json("watch", job_id)["status"] == "success"
    assert 'result {"lines": 3}' in org_jobs.printed("show", job_id)
    assert org_jobs.refused("retry", job_id)


def test_a_job_can_be_created_and_awaited(
    org_jobs: OrgJobsCommands, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = org_jobs.server()
    payload = ("--payload", '{"command": "save-all"}', "--priority", "1", "--retries", "0")
    during_pauses(monkeypatch, lambda: org_jobs.run_job("1", attempt_succeeded()))
    document = org_jobs.json("create", "--type", "RCON", "--server", server, *payload, "--wait")
    job = document["job"]
    assert (document["status"], job["priority"], job["retryPolicy"]["maxRetries"]) == (
        "success",
        1,
        0,
    )
    result = org_jobs.printed("create", "--type", "RCON", "--server", server, *payload)
    assert result == "Job 2 is requested: `automation org-jobs watch 2` follows it."
    fault = org_jobs.refused("create", "--type", "RCON", *payload, code=2)
    assert "serverInstanceId: " in fault


def test_queues_show_waiting_and_running_jobs(org_jobs: OrgJobsCommands) -> None:
    org_jobs.start_job(org_jobs.job())
    org_jobs.job()
    org_jobs.org("globex")
    org_jobs.json("orgs", "suspend", "globex")
    document = org_jobs.json("queues")["queues"]
    assert [(one["orgId"], one["waiting"], one["running"]) for one in document] == [
        ("acme", 1, 1),
        ("globex", 0, 0),
    ]
    assert [one["orgId"] for one in org_jobs.json("queues", "--org", "acme")["queues"]] == ["acme"]
    org_jobs.json(
        "orgs", "create", "third", "--name", "3", "--maintenance-until", "2127-01-01T00:00:00Z"
    )
    oldest = f"{org_jobs.data.job_row(2).created_at:%Y-%m-%d %H:%M}"
    assert org_jobs.printed("queues") == (
        "organisation state waiting to be retried claimed running at once oldest (UTC) "
        f"acme in service 1 0 0 1 10 {oldest} globex suspended 0 0 0 0 10 "
        "third in service; maintenance until 2127-01-01 00:00 0 0 0 0 10"
    )


def test_job_types_show_their_performer_and_payload_schema(without_org: OrgJobsCommands) -> None:
    document = {one["name"]: one for one in without_org.json("types")["types"]}
    assert document["HTTPS_CALL"]["performer"] == "service"
    assert "url" in document["HTTPS_CALL"]["payloadSchema"]["properties"]
    result = without_org.printed("types")
    assert (
        "SERVER_RESTART agent yes 24 h Stop the server and start it again. Also: restart. "
        "SERVER_SAFE_RESTART agent yes 24 h Back up, then restart when few players are online. "
    ) in result
    assert "SAVE_LIST agent no 3 min List the saves and backups. " in result
    assert "PRICING_RULE_APPLY service yes 24 h pricing.runs.write Plan a pricing rule" in result


def test_an_organisation_defines_job_types(org_jobs: OrgJobsCommands) -> None:
    path = org_jobs.terminal.folder / "schema.json"
    path.write_text('{"type": "object"}')
    flags = ("--summary", "Export", "--limit-seconds", "7200", "--read-only", "--schema", str(path))
    made = org_jobs.json("types", "create", "EXPORT", *flags)
    fields = ("name", "orgId", "summary", "limitSeconds", "isMutation", "payloadSchema")
    expected = ("EXPORT", "acme", "Export", 7200, False, {"type": "object"})
    assert tuple(made[field] for field in fields) == expected
    created = org_jobs.printed("types", "create", "IMPORT", "--summary", "Import")
    assert created == "Job type IMPORT of organisation acme is defined."
    listed = org_jobs.printed("types", "list", "--org", "acme")
    assert listed.endswith("EXPORT agent no 2 h Export IMPORT agent yes 15 min Import")
    changed = org_jobs.json("types", "update", "EXPORT", "--changes", "--limit-seconds", "7199")
    assert (changed["isMutation"], changed["limitSeconds"]) == (True, 7199)
    updated = org_jobs.printed("types", "update", "EXPORT", "--summary", "Export it")
    assert updated == "Job type EXPORT of organisation acme is updated."
    assert "EXPORT agent yes 119 min Export it" in org_jobs.printed("types", "list")
    assert org_jobs.refused("types", "delete", "EXPORT", code=2) == (
        "Standard input is not a terminal: add --yes to delete job type EXPORT."
    )
    deleted = org_jobs.json("types", "delete", "EXPORT", "--yes")
    assert deleted == {"name": "EXPORT", "deleted": True}
    assert org_jobs.printed("types", "delete", "IMPORT", "--yes") == "Job type IMPORT is deleted."
    names = {one["name"] for one in org_jobs.json("types", "list", "--org", "acme")["types"]}
    assert names.isdisjoint({"EXPORT", "IMPORT"})
    missing = org_jobs.refused("types", "delete", "x" * 101, "--yes")
    assert missing == f"Job type {'x' * 100} does not exist."


CONTINUES = "Job 1 continues. `automation org-jobs show 1` shows its status.\n"


def stop_code(monkeypatch: pytest.MonkeyPatch, clock: FakeClock) -> str | None:
    """Return the exit code with which the command stops following job 1, or None."""
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
    org_jobs: OrgJobsCommands, monkeypatch: pytest.MonkeyPatch, flags: list[str]
) -> None:
    during_pauses(monkeypatch)
    ended = org_jobs.run("watch", org_jobs.job(), *flags)
    assert (ended.code, ended.err) == (130, CONTINUES)
    assert org_jobs.json("show", "1")["status"] == "pending"


def test_the_command_prints_why_a_job_does_not_start(
    org_jobs: OrgJobsCommands, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    org_jobs.json("create", "--type", "SERVER_RESTART", "--server", org_jobs.server())
    assert stop_code(monkeypatch, clock) == "NO_AGENT"
    org_jobs.json("orgs", "update", "acme", "--max-running", "1")
    org_jobs.start_job(org_jobs.job())
    assert stop_code(monkeypatch, clock) is None, "it waits in its queue"
    org_jobs.json("orgs", "update", "acme", "--max-running", "9")
    org_jobs.json("orgs", "suspend", "acme")
    assert stop_code(monkeypatch, clock) == "SUSPENDED"


def test_a_service_job_does_not_start_without_a_daemon(
    org_jobs: OrgJobsCommands, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    org_jobs.job()
    assert stop_code(monkeypatch, clock) == "NO_DAEMON"
    org_jobs.start_job("1", lease_owner=None)
    assert stop_code(monkeypatch, clock) is None
