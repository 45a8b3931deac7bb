"""Tests of automation commands through the API of a remote machine."""

import json

import pytest
from sqlalchemy import select

from automation_pipeline.automation.runs import finalise_run
from automation_pipeline.cli import operations
from automation_pipeline.storage.run_requests import RunRequestRow, mark_refused
from automation_pipeline.transcription.tables import TranscriptionRunRow
from automation_pipeline_tests.audits.configurations import document
from automation_pipeline_tests.audits.harness import AuditHarness
from automation_pipeline_tests.cli.remote.served import RemoteTerminal
from automation_pipeline_tests.cli.terminal import DAILY, during_pauses


def requests(remote: RemoteTerminal) -> list[RunRequestRow]:
    with remote.local.database.reading() as session:
        return list(session.scalars(select(RunRequestRow).order_by(RunRequestRow.id)))


def test_the_list_of_schedules_spans_all_pages(
    remote: RemoteTerminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "PAGE", 2)
    ids = [remote.local.create() for _ in range(5)]
    for listed in (remote.json("schedules", "list"), remote.local.json("schedules", "list")):
        assert [one["id"] for one in listed["schedules"]] == ids[::-1]


def test_a_schedule_can_be_managed_through_the_api(remote: RemoteTerminal) -> None:
    created = remote.json("schedules", "create", "--file", "-", given=DAILY)
    assert created == remote.local.json("schedules", "show", created["id"])
    changed = remote.json(
        "schedules", "update", created["id"], "--file", "-", given={"timeOfDay": "04:15"}
    )
    assert changed["timeOfDay"] == "04:15"
    assert (
        remote.json("schedules", "pause", created["id"], "--reason", "closed")["pausedReason"]
        == "closed"
    )
    assert remote.json("schedules", "resume", created["id"])["isActive"] is True
    coming = remote.json("schedules", "next", created["id"], "--count", "1")["occurrences"]
    assert remote.json("schedules", "skip-next", created["id"]) == {
        "id": created["id"],
        "skipped": coming[0],
    }
    run = remote.json("schedules", "run-now", created["id"])
    assert [request.config["run_id"] for request in requests(remote)] == [int(run["run_id"])]
    ended = remote.json("runs", "cancel", run["run_id"], "--yes", "--reason", "wrong day")
    assert ended == {
        "run_id": run["run_id"],
        "status": "cancelled",
        "error": "Cancelled by an operator: wrong day",
    }
    assert (
        remote.run("schedules", "delete", created["id"], given=b"y\n", is_interactive=True).code
        == 0
    )
    assert remote.local.json("schedules", "list")["schedules"] == []


def test_a_run_with_its_own_selection_is_followed_to_its_end(
    remote: RemoteTerminal, harness: AuditHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule_id = remote.local.create()
    during_pauses(
        monkeypatch,
        lambda: finalise_run(
            1, database=harness.database, clock=harness.clock, breakdown="It broke"
        ),
    )
    chosen = remote.local.folder / "chosen.json"
    chosen.write_text(json.dumps({"mode": "manual", "ficheIds": ["7"]}))
    ended = remote.run(
        "schedules", "run-now", schedule_id, "--selection", str(chosen), "--wait", "--json"
    )
    assert (ended.code, json.loads(ended.out)["status"]) == (1, "failed")


def test_failed_fiches_can_be_retried(remote: RemoteTerminal, stored: AuditHarness) -> None:
    again = remote.json("runs", "retry", "1")
    assert (again["run_id"], again["retry_of_run_id"], again["status"]) == ("2", "1", "pending")
    assert remote.local.json("runs", "show", "2")["retryOfRunId"] == "1"


def test_a_configuration_can_be_imported_exported_and_updated(remote: RemoteTerminal) -> None:
    result = remote.json("audit-configs", "import", "-", given=document("Sales", 3))
    assert result == {"id": "1", "name": "Sales", "outcome": "created", "steps": 3}
    exported = remote.json("audit-configs", "export", "1")
    assert (
        remote.local.json("audit-configs", "import", "-", given=exported)["outcome"] == "unchanged"
    )
    other = document("Sales", 2)
    refused = remote.run("audit-configs", "import", "-", given=json.dumps(other).encode())
    assert (refused.code, refused.err) == (
        1,
        remote.local.run("audit-configs", "import", "-", given=json.dumps(other).encode()).err,
    )
    assert (
        remote.json("audit-configs", "import", "-", "--update", given=other)["outcome"] == "updated"
    )
    assert remote.json("audit-configs", "deactivate", "1") == {
        "id": "1",
        "name": "Sales",
        "isActive": False,
    }
    assert remote.json("audit-configs", "activate", "1")["isActive"] is True
    shown = remote.json("audit-configs", "show", "1")
    reordered = [step["id"] for step in reversed(shown["steps"])]
    assert [
        step["id"] for step in remote.json("audit-configs", "reorder", "1", *reordered)["steps"]
    ] == reordered
    assert remote.json("audit-configs", "delete", "1") == {"id": "1", "deleted": True}


def test_a_token_is_shown_once_and_revoked(remote: RemoteTerminal) -> None:
    created = remote.json("tokens", "create", "--name", "client", "-p", "automation", "-s", "ALL")
    client = RemoteTerminal(remote.local, remote.url, created["token"])
    assert client.json("schedules", "list") == {"schedules": []}
    assert (
        client.run("schedules", "delete", "1", "--yes").err
        == f"The API at {remote.url} refuses the token: Missing permission.\n"
    )
    assert created["token"] not in remote.run("tokens", "list", "--all").out
    assert remote.json("tokens", "revoke", created["id"])["state"] == "revoked"
    ended = client.run("schedules", "list")
    assert (ended.code, ended.err) == (
        1,
        f"The API at {remote.url} refuses the token: Missing or invalid credentials.\n",
    )
    assert created["token"] not in ended.err


def test_an_audit_can_be_overridden_and_deleted(
    remote: RemoteTerminal, stored: AuditHarness
) -> None:
    result = remote.json(
        "audits",
        "review",
        "1",
        "--step",
        "1",
        "--conforme",
        "PARTIEL",
        "--score",
        "1",
        "--reviewer",
        "anna",
    )
    assert (result["step"]["conforme"], result["step"]["human_review"][0]["by"]) == (
        "PARTIEL",
        "anna",
    )
    result = remote.json(
        "audits",
        "review",
        "1",
        "--step",
        "2",
        "--point",
        "1",
        "--statut",
        "ABSENT",
        "--reviewer",
        "anna",
    )
    assert result["step"]["points_controle"][0]["statut"] == "ABSENT"
    assert "stepResults" not in result["audit"]
    assert remote.json("audits", "delete", "1") == {"id": "1", "deleted": True}
    assert remote.json("audits", "restore", "1") == {"id": "1", "deleted": False}


def test_audits_are_followed_and_rejected_requests_are_reported(
    remote: RemoteTerminal, stored: AuditHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work() -> None:
        first, second = (request.request_key for request in requests(remote))
        stored.audit("1", 1, first)
        with stored.database.transaction() as session:
            mark_refused(session, second, "There is no such fiche.")

    during_pauses(monkeypatch, work)
    result = remote.json("audit", "1", "2", "--config", "1", "--wait", code=1)
    assert [(one["fiche_id"], one["status"], one["error"]) for one in result["audits"]] == [
        ("1", "completed", None),
        ("2", "failed", "There is no such fiche."),
    ]
    assert result["batch_id"] in result["audits"][0]["tracking_id"]


def test_an_audit_is_shown_with_its_steps(
    remote: RemoteTerminal, stored: AuditHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    during_pauses(
        monkeypatch,
        lambda: stored.audit("1", 1, requests(remote)[0].request_key) and None,
    )
    ended = remote.run("audit", "1", "--config", "1", "--tools", "--wait")
    assert (ended.code, ended.err) == (0, "")
    assert requests(remote)[0].config["trigger_source"] == "cli"
    assert "critical steps passed" in ended.out


def test_a_rejected_rerun_is_reported(
    remote: RemoteTerminal, stored: AuditHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        with stored.database.transaction() as session:
            mark_refused(session, requests(remote)[0].request_key, "The model is away.")

    during_pauses(monkeypatch, refuse)
    result = remote.json(
        "audits", "rerun", "1", "--step", "1", "--instructions", "Look again", "--wait", code=1
    )
    assert (result["error"], requests(remote)[0].config["custom_prompt"]) == (
        "The model is away.",
        "Look again",
    )


def test_transcriptions_are_followed_until_they_end(
    remote: RemoteTerminal, harness: AuditHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first transcription is refused and the second completes. The command reports both."""

    def work() -> None:
        with harness.database.transaction() as session:
            mark_refused(session, requests(remote)[0].request_key, "The CRM knows no fiche 7.")
            ended = {
                "status": "completed",
                "total_recordings": 3,
                "already_transcribed": 1,
                "target_total": 2,
            }
            times = dict.fromkeys(("started_at", "touched_at", "finished_at"), harness.clock.now())
            run = {"id": requests(remote)[1].config["run_id"], "fiche_id": "8", "priority": "high"}
            session.add(
                TranscriptionRunRow(**run, **ended, **times, processed=2, cached=0, failed=0)
            )

    during_pauses(monkeypatch, work)
    result = remote.json("transcribe", "7", "8", "--priority", "high", "--wait", code=1)[
        "transcriptions"
    ]
    assert [{**one, "run_id": None} for one in result] == [
        {"fiche_id": "7", "run_id": None, "status": "failed", "recordings": None, "transcribed": None, "failed": None,
         "error": "The CRM knows no fiche 7."},
        {"fiche_id": "8", "run_id": None, "status": "completed", "recordings": 3, "transcribed": 3, "failed": 0,
         "error": None},
    ]  # fmt: skip
    assert [one["run_id"] for one in result] == [
        request.config["run_id"] for request in requests(remote)
    ]


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("db upgrade", ""),
        ("db current", ""),
        ("simulator", ""),
        ("api", ""),
        ("fiches sync", "--date 2026-02-03"),
    ],
)
def test_local_only_options_are_rejected_with_a_remote_api(
    remote: RemoteTerminal, command: str, options: str
) -> None:
    ended = remote.run(*command.split(), *options.split())
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"`automation {command}` works only on the local machine")
