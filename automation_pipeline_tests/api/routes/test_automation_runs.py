"""Automation run routes: request, list, show, cancel and retry; back-fill and preview."""

from collections.abc import Sequence
from datetime import date
from typing import Any

from fastapi.testclient import TestClient

from automation_pipeline.automation.models.runs import LedgerMove, OutcomeStatus, Reason
from automation_pipeline.automation.queries.ledger import open_ledger, record_moves
from automation_pipeline.automation.queries.runs import write_log
from automation_pipeline.automation.rules.fiches import failed_move, ignored_move
from automation_pipeline.automation.runs import finalise_run, open_run
from automation_pipeline.automation.tables import RunRow
from automation_pipeline.bootstrap import Services
from automation_pipeline_tests.api.conftest import Login
from automation_pipeline_tests.audits.harness import AuditHarness, call
from automation_pipeline_tests.factories import make_launch
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.crm import summary

RUNS, SCHEDULES = "/api/automation/runs", "/api/automation/schedules"
MOVES: Sequence[LedgerMove] = (
    LedgerMove("1", OutcomeStatus.SUCCESSFUL, recordings_count=2, audits=1),
    failed_move("2", Reason.FETCH_FAILED, "The CRM answered 503."),
    ignored_move("3", Reason.NOT_FOUND, "Fiche not found (404)", 4),
)


def create_schedule(client: TestClient, **fields: object) -> str:
    selection = {"mode": "manual", "ficheIds": ["1", "2", "3"]}
    schedule = {"name": "Nightly", "scheduleType": "MANUAL", "ficheSelection": selection, **fields}
    answered = client.post(SCHEDULES, json=schedule)
    assert answered.status_code == 201, answered.text
    return answered.json()["data"]["id"]


def trigger(client: TestClient, schedule_id: str, **fields: object) -> dict[str, Any]:
    body = {"scheduleId": schedule_id, **fields}
    answered = client.post("/api/automation/trigger", json=body)
    assert answered.status_code == 200, answered.text
    return answered.json()


def work(services: Services, run_id: int) -> None:
    """Start the run and record an outcome of every kind for its fiches, without ending it."""
    database, now = services.database, services.clock.now()
    open_run(make_launch(1, run_id=run_id), database=database, clock=services.clock)
    with database.transaction() as session:
        open_ledger(session, run_id, ["1", "2", "3"], 3, now)
        session.get_one(RunRow, run_id).selected_fiches = 3
        write_log(session, run_id, now, "warning", "Slow", {"ficheId": "1"})
    with database.transaction() as session:
        record_moves(session, run_id, MOVES, now)


def data(client: TestClient, path: str, **parameters: object) -> Any:
    answered = client.get(path, params=parameters)  # type: ignore[arg-type]
    assert answered.status_code == 200, answered.text
    return answered.json()["data"]


def test_a_run_is_requested_followed_and_retried(client: TestClient, services: Services) -> None:
    override = {"mode": "manual", "ficheIds": ["1", "2", "3"], "maxFiches": 3}
    schedule_id = create_schedule(client)
    assert trigger(client, schedule_id, overrideFicheSelection=override) == {
        "success": True,
        "message": "Automation triggered successfully",
        "schedule_id": "1",
        "run_id": "1",
        "event_ids": ["automation-run-1"],
    }
    busy = client.post("/api/automation/trigger", json={"scheduleId": schedule_id})
    assert (busy.status_code, busy.json()["code"]) == (409, "CONFLICT")
    work(services, 1)
    active = data(client, f"{RUNS}/1")
    expected = {"successful": ["1"], "transcriptions": 0, "audits": 0}
    expected["failed"] = [{"ficheId": "2", "error": "The CRM answered 503."}]
    expected["ignored"] = [
        {"ficheId": "3", "reason": "Fiche not found (404)", "recordingsCount": 4}
    ]
    assert active["resultSummary"] == expected
    assert active["configSnapshot"]["overrides"]["ficheIds"] == ["1", "2", "3"]
    assert active["reasons"] == {"failed": {"fetch_failed": 1}, "ignored": {"not_found": 1}}
    assert [(line["level"], line["metadata"]) for line in active["logs"]] == [
        ("info", {"worker": "host:1", "dagsterRunId": "dagster-1"}),
        ("warning", {"ficheId": "1"}),
    ]
    finalise_run(1, database=services.database, clock=services.clock, attempt=1)
    again = client.post(f"{RUNS}/1/retry").json()
    assert again == {
        "success": True,
        "message": "Retry requested",
        "schedule_id": "1",
        "run_id": "2",
        "retry_of_run_id": "1",
    }
    cancelled = client.post(f"{RUNS}/2/cancel", json={"reason": "wrong day"}).json()["data"]
    assert (cancelled["status"], cancelled["errorMessage"]) == (
        "cancelled",
        "Cancelled by an operator: wrong day",
    )


def test_lists_of_a_run_are_filtered_and_paged(client: TestClient, services: Services) -> None:
    trigger(client, create_schedule(client))
    work(services, 1)
    found = client.get(f"{RUNS}/1/fiches", params={"limit": 2, "offset": 1}).json()
    assert [one["ficheId"] for one in found["data"]] == ["2", "3"]
    assert (found["count"], found["limit"], found["offset"]) == (2, 2, 1)
    failed = data(client, f"{RUNS}/1/fiches", status="failed")
    assert [(one["ficheId"], one["reason"]) for one in failed] == [("2", "fetch_failed")]
    lines = data(client, f"{RUNS}/1/logs")
    assert [line["message"] for line in lines] == ["Automation run started", "Slow"]
    assert data(client, f"{RUNS}/1/logs", level="warning") == lines[1:]
    assert data(client, f"{RUNS}/1/logs", after=lines[0]["id"]) == lines[1:]
    assert data(client, f"{RUNS}/1/logs", limit=1, offset=1) == lines[1:]
    for path in ("fiches", "logs"):
        assert client.get(f"{RUNS}/9/{path}").status_code == 404


def test_runs_are_listed_by_schedule_and_status(client: TestClient) -> None:
    first, second = create_schedule(client), create_schedule(client)
    for schedule_id in (first, second):
        trigger(client, schedule_id)
    client.post(f"{RUNS}/1/cancel")
    trigger(client, first)

    def listed(path: str, **parameters: object) -> list[str]:
        return [run["id"] for run in data(client, path, **parameters)]

    assert listed(RUNS) == ["3", "2", "1"]
    assert listed(RUNS, limit=1, offset=1) == ["2"]
    assert listed(RUNS, status="cancelled") == ["1"]
    assert listed(f"{SCHEDULES}/1/runs") == ["3", "1"]
    assert listed(f"{SCHEDULES}/1/runs", limit=1, offset=1) == ["1"]
    assert listed(f"{SCHEDULES}/1/runs", status="pending") == ["3"]
    assert client.get(f"{SCHEDULES}/9/runs").status_code == 404
    assert [run["id"] for run in data(client, f"{SCHEDULES}/1")["runs"]] == ["3", "1"]


def test_a_caller_of_limited_scope_sees_no_fiche_ids(
    client: TestClient, login: Login, services: Services
) -> None:
    selection = {"mode": "manual", "ficheIds": ["1", "2", "3"], "groupes": ["NORD"]}
    trigger(client, create_schedule(client, ficheSelection=selection))
    work(services, 1)
    nord = login({"automation.read": "GROUP"}, groupes=["NORD"])
    shown = data(nord, f"{RUNS}/1")
    assert (shown["resultSummary"], shown["configSnapshot"]["overrides"]) == ({}, None)
    assert [line["metadata"] for line in shown["logs"]] == [{}, {}]
    assert [line["metadata"] for line in data(nord, f"{RUNS}/1/logs")] == [{}, {}]
    assert data(nord, f"{RUNS}/1/fiches") == []
    refused = nord.get(f"{RUNS}/1/report")
    assert (refused.status_code, refused.json()["error"]) == (
        403,
        "The report shows every fiche of the run: it needs the scope ALL",
    )


def test_a_backfill_files_one_run_per_day(client: TestClient) -> None:
    sales = {"mode": "date_range", "dateRange": "yesterday"}
    path = f"{SCHEDULES}/{create_schedule(client, ficheSelection=sales)}/backfill"
    days = {"from": "2026-05-01", "to": "2026-05-02"}
    dry = client.post(path, json={**days, "dryRun": True}).json()["data"]
    assert (dry["dryRun"], [day["runId"] for day in dry["days"]]) == (True, [None, None])
    filed = client.post(path, json=days).json()["data"]
    first = {"day": "2026-05-01", "key": "automation-backfill-1-2026-05-01", "filed": True}
    assert filed["days"][0] == {**first, "excluded": False, "runId": "1", "status": "pending"}
    assert (filed["scheduleId"], filed["dryRun"], len(filed["days"])) == ("1", False, 2)


def test_a_preview_counts_for_limited_scopes_without_naming_fiches(
    client: TestClient, login: Login, services: Services, clock: FakeClock
) -> None:
    harness = AuditHarness(services.database, clock)
    harness.sell("1", call("11"), call("12"))
    harness.crm.set_sales(date(2026, 5, 3), summary("1"), summary("2"))
    services.__dict__["crm_with"] = lambda _key: harness.crm
    selection = {"mode": "date_range", "dateRange": "yesterday", "maxRecordingsPerFiche": 1}
    path = SCHEDULES + "/{}/preview"
    schedule_id = create_schedule(client, ficheSelection={**selection, "groupes": ["TEAM R1"]})
    shown = data(client, path.format(schedule_id))
    assert (shown["fiches"], shown["selected"], shown["days"]) == (["1", "2"], 2, ["2026-05-03"])
    assert [one["ficheId"] for one in shown["ignored"]] == ["1"]
    nord = login({"automation.read": "GROUP"}, groupes=["TEAM R1"])
    hidden = {"fiches": [], "dropped": [], "ignored": []}
    assert data(nord, path.format(schedule_id)) == {**shown, **hidden}
