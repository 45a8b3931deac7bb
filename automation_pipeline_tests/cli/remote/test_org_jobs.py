"""Tests of `automation org-jobs` through the API of a remote machine."""

import pytest

from automation_pipeline.org_jobs.models.jobs import attempt_failed, attempt_succeeded
from automation_pipeline_tests.cli.org_jobs.commands import CALL, UNKNOWN_ID, OrgJobsCommands
from automation_pipeline_tests.cli.remote.served import RemoteTerminal
from automation_pipeline_tests.cli.terminal import Terminal, during_pauses

READ_COMMANDS = """
schedules list
schedules list --org acme --state active --type HTTPS_CALL --query warm --limit 1 --json
schedules list --server 1 --json
schedules show {id}
schedules show {id} --json
schedules next {id} --after 2027-03-27T12:00:00Z
schedules next {id} --after 2027-03-27T12:00:00Z --count 2 --json
schedules fires {id}
schedules fires {id} --limit 1 --json
schedules log {id}
schedules log {id} --limit 1 --json
list
list --org acme --status failed --type HTTPS_CALL --schedule {id} --json
list --backfill 1 --server 1 --json
show 1
show 1 --json
log 1
log 1 --json
watch 1 --json
queues
queues --org acme --json
types
types --json
alerts --json
audit-log --org acme
audit-log --entity schedule --id {id} --limit 1 --json
backfills list
backfills list --org acme --json
backfills show 1
backfills show 1 --json
orgs list --json
orgs show acme
hosts list --org acme
hosts show 1 --json
servers list --org acme --json
servers show 1
"""

REFUSED = f"""
schedules show {UNKNOWN_ID}
schedules next {UNKNOWN_ID}
schedules fires {UNKNOWN_ID}
schedules log {UNKNOWN_ID}
schedules delete {UNKNOWN_ID} --yes
schedules pause {UNKNOWN_ID}
schedules resume {UNKNOWN_ID}
schedules run-now {UNKNOWN_ID}
schedules skip-next {UNKNOWN_ID}
schedules keep-next {UNKNOWN_ID}
schedules update {UNKNOWN_ID} --name x
schedules list --org unknown
show 99
log 99
cancel 99
retry 99
cancel 1
list --org unknown
list --org No/body
queues --org unknown
alerts --org unknown
audit-log --org unknown
backfills show 99
backfills cancel 99
backfills list --org unknown
orgs show unknown
orgs show ../acme
orgs update unknown --name x
orgs suspend unknown
orgs resume unknown
hosts create --org unknown --name x
hosts show 99
hosts update 99 --name x
hosts delete 99 --yes
hosts delete 1 --yes
hosts create --org acme
servers show 99
servers update 99 --name x
servers delete 99 --yes
servers create --org acme --name x --host 99
create --org acme --type SLEEP
"""

FAULTY: list[tuple[str, object]] = [
    ("schedules create --org acme --file -", {**CALL, "timezone": "Mars/Base", "colour": "red"}),
    ("schedules preview --file -", {**CALL, "cronExpression": "x"}),
    ("schedules update {id} --file -", {"name": None}),
    ("schedules backfill {id} --from 2026-05-02T00:00:00Z --until 2026-05-01T00:00:00Z", None),
    ("orgs create --file -", {"id": "A!", "name": ""}),
    ("create --org acme --file -", {"type": "HTTPS_CALL", "payload": {"url": "ftp://x"}}),
]


@pytest.fixture
def org_jobs(terminal: Terminal) -> OrgJobsCommands:
    """Create two organisations; one has a schedule with a failed job, a backfill, a host, and a
    server."""
    terminal.export(LOGNAME="ada")
    org_jobs = OrgJobsCommands(terminal)
    org_jobs.org("globex")
    org_jobs.org()
    org_jobs.server()
    schedule_id = org_jobs.schedule("--org", "acme")
    org_jobs.run_job(
        org_jobs.json("schedules", "run-now", schedule_id)["job_id"],
        attempt_failed("Gone [away]", "NOT_FOUND"),
    )
    org_jobs.json(
        "schedules",
        "backfill",
        schedule_id,
        "--from",
        "2026-05-01T00:00:00Z",
        "--until",
        "2026-05-02T00:00:00Z",
    )
    return org_jobs


@pytest.fixture
def schedule_id(org_jobs: OrgJobsCommands) -> str:
    return org_jobs.json("schedules", "list")["schedules"][0]["id"]


def lines(text: str) -> list[str]:
    return [f"org-jobs {command}" for command in text.strip().splitlines()]


def test_output_is_the_same_through_the_api(schedule_id: str, remote: RemoteTerminal) -> None:
    assert remote.differences(lines(READ_COMMANDS.format(id=schedule_id))) == []


def test_rejections_are_the_same_through_the_api(
    org_jobs: OrgJobsCommands, remote: RemoteTerminal
) -> None:
    commands = lines(REFUSED)
    assert remote.differences(f"{command} --json" for command in commands[1::2]) == []
    assert remote.differences(commands[::2]) == []
    ended = [remote.run(*command.split()) for command in commands]
    assert {(end.code > 0, end.out, len(end.err.splitlines())) for end in ended} == {(True, "", 1)}


def test_input_errors_are_the_same_through_the_api(
    schedule_id: str, remote: RemoteTerminal
) -> None:
    for command, given in FAULTY:
        assert remote.differences(lines(command.format(id=schedule_id)), given) == []


def test_an_org_schedule_can_be_managed_through_the_api(
    org_jobs: OrgJobsCommands, remote: RemoteTerminal
) -> None:
    created = remote.json(
        "org-jobs", "schedules", "create", "--org", "globex", "--file", "-", given=CALL
    )
    arguments = ("org-jobs", "schedules")
    assert created == org_jobs.json("schedules", "show", created["id"])
    assert (created["orgId"], created["createdBy"]) == ("globex", "machine:environment")
    assert (
        remote.json(*arguments, "update", created["id"], "--name", "Other", "--retries", "1")[
            "name"
        ]
        == "Other"
    )
    paused = remote.json(
        *arguments, "pause", created["id"], "--reason", "Rest", "--until", "2127-01-01T00:00:00Z"
    )
    assert (paused["pauseReason"], paused["pausedUntil"]) == ("Rest", "2127-01-01T00:00:00.000Z")
    assert remote.json(*arguments, "resume", created["id"])["state"] == "ACTIVE"
    assert (
        remote.json(*arguments, "skip-next", created["id"], "--reason", "Party")[
            "skipNextRunReason"
        ]
        == "Party"
    )
    assert remote.json(*arguments, "keep-next", created["id"])["skipNextRun"] is False
    previewed = remote.json(
        *arguments,
        "preview",
        "--file",
        "-",
        "--after",
        "2026-05-04T00:00:00Z",
        "--count",
        "1",
        given=CALL,
    )
    assert previewed["occurrences"] == ["2026-05-05T00:00:00Z"]
    period = ("--from", "2026-05-01T00:00:00Z", "--until", "2026-05-01T12:00:00Z")
    assert remote.json(*arguments, "backfill", created["id"], *period, "--dry-run")["total"] == 1
    backfill = remote.json(*arguments, "backfill", created["id"], *period)
    assert remote.json("org-jobs", "backfills", "cancel", backfill["id"])["status"] == "cancelled"
    assert remote.json(*arguments, "delete", created["id"], "--yes") == {
        "id": created["id"],
        "deleted": True,
    }


def test_a_job_can_be_followed_through_the_api(
    org_jobs: OrgJobsCommands,
    schedule_id: str,
    remote: RemoteTerminal,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[str] = []

    def work() -> None:
        newest = org_jobs.json("list", "--limit", "1")["jobs"][0]["id"]
        org_jobs.run_job(newest, attempt_succeeded())
        done.append(newest)

    payload = ("--payload", '{"url": "https://example.com/other"}')
    during_pauses(monkeypatch, work)
    document = remote.json(
        "org-jobs", "create", "--org", "globex", "--type", "HTTPS_CALL", *payload, "--wait"
    )
    assert (document["status"], [document["job_id"]]) == ("success", done)
    asked = remote.json("org-jobs", "create", "--org", "globex", "--type", "HTTPS_CALL", *payload)
    assert (
        remote.json("org-jobs", "cancel", asked["job_id"], "--reason", "No")["status"]
        == "cancelled"
    )
    assert remote.json("org-jobs", "retry", asked["job_id"])["status"] == "pending"


def test_organisations_hosts_and_servers_can_be_managed_through_the_api(
    org_jobs: OrgJobsCommands, remote: RemoteTerminal
) -> None:
    remote.json("org-jobs", "orgs", "create", "third", "--name", "Third")
    assert (
        remote.json("org-jobs", "orgs", "update", "third", "--max-running", "2")["maxRunning"] == 2
    )
    assert (
        remote.json("org-jobs", "orgs", "suspend", "third", "--reason", "x")["suspendReason"] == "x"
    )
    assert remote.json("org-jobs", "orgs", "resume", "third")["suspendedAt"] is None
    host = remote.json("org-jobs", "hosts", "create", "--org", "third", "--name", "h")["id"]
    assert remote.json("org-jobs", "hosts", "update", host, "--name", "g")["name"] == "g"
    server = remote.json(
        "org-jobs", "servers", "create", "--org", "third", "--name", "s", "--host", host
    )["id"]
    assert remote.json("org-jobs", "servers", "update", server, "--no-host")["hostId"] is None
    assert remote.json("org-jobs", "servers", "delete", server, "--yes") == {
        "id": server,
        "deleted": True,
    }
    assert remote.json("org-jobs", "hosts", "delete", host, "--yes") == {
        "id": host,
        "deleted": True,
    }
