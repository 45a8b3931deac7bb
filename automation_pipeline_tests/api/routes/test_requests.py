"""Status of requests: pending, running, refused, and hidden when out of scope."""

from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select

from automation_pipeline.audits.routes.requests import (
    AuditRequest,
    RerunRequest,
    TranscriptionRequest,
)
from automation_pipeline.bootstrap import Services
from automation_pipeline.storage.run_requests import RunRequestRow, mark_refused, mark_taken
from automation_pipeline.transcription.tables import TranscriptionRunRow
from automation_pipeline_tests.api.conftest import Login
from automation_pipeline_tests.audits.archive import Archive

MODELS = {"transcriptions": TranscriptionRequest, "audits": AuditRequest, "reruns": RerunRequest}


@pytest.fixture
def archive(services: Services) -> Archive:
    archive = Archive(services.database)
    archive.put("900", of_fiche_groupe="SUD", status="completed")
    archive.put("901", of_fiche_groupe="NORD")
    return archive


def request_status(client: TestClient, what: str, *keys: str) -> list[dict[str, Any]]:
    answered = client.get(f"/api/requests/{what}", params={"key": list(keys)})
    assert answered.status_code == 200, answered.text
    for one in answered.json()["data"]:
        MODELS[what].model_validate(one)
    return answered.json()["data"]


def transcriptions(client: TestClient) -> list[str]:
    return [
        client.post(f"/api/transcriptions/{fiche_id}").json()["event_id"]
        for fiche_id in ("900", "901")
    ]


def test_a_transcription_request_shows_its_refusal_or_run(
    client: TestClient, services: Services, archive: Archive
) -> None:
    first, second = transcriptions(client)
    waiting = request_status(client, "transcriptions", second, first, "transcribe-1-1")
    assert [(one["fiche_id"], one["standing"], one["refused"]) for one in waiting] == [
        ("900", None, None),
        ("901", None, None),
    ]
    with services.database.transaction() as session:
        mark_refused(session, first, "No key is set.")
        mark_taken(session, second, "dagster-1")
        counts = dict.fromkeys(("already_transcribed", "cached", "failed", "processed"), 0)
        times = dict.fromkeys(("started_at", "touched_at"), services.clock.now())
        run = {
            "id": waiting[1]["run_id"],
            "fiche_id": "901",
            "priority": "normal",
            "status": "running",
        }
        session.add(
            TranscriptionRunRow(**run, **counts, **times, total_recordings=2, target_total=2)
        )
    refused, running = request_status(client, "transcriptions", first, second)
    assert (refused["refused"], refused["standing"]) == ("No key is set.", None)
    assert (running["standing"]["status"], running["standing"]["total"]) == ("running", 2)


def test_a_request_that_joined_a_run_shows_that_run(
    client: TestClient, services: Services, archive: Archive
) -> None:
    [first, _] = transcriptions(client)
    with services.database.transaction() as session:
        mark_taken(session, first, "dagster-1")
        counts = dict.fromkeys(
            ("already_transcribed", "cached", "failed", "processed", "target_total"), 0
        )
        times = dict.fromkeys(("started_at", "touched_at"), services.clock.now())
        run = {"id": "another", "fiche_id": "900", "priority": "normal", "status": "running"}
        session.add(TranscriptionRunRow(**run, **counts, **times, total_recordings=2))
    [joined] = request_status(client, "transcriptions", first)
    assert (joined["run_id"], joined["standing"]["run_id"]) == ("another", "another")


def test_an_audit_request_is_found_by_its_event_id(
    client: TestClient, services: Services, archive: Archive
) -> None:
    body = {"fiche_id": "900", "audit_config_id": str(archive.configs[0])}
    asked = client.post("/api/audits", json=body).json()["event_id"]
    [waiting] = request_status(client, "audits", asked)
    assert waiting == {"key": asked, "fiche_id": "900", "standing": None, "refused": None}
    started = archive.put(
        "902", tracking_id="audit-902", status="failed", error_message="No recordings"
    )
    with services.database.transaction() as session:
        row = session.scalars(select(RunRequestRow).where(RunRequestRow.request_key == asked)).one()
        row.request_key = "audit-902"
    [ended] = request_status(client, "audits", "audit-902")
    assert (ended["standing"]["audit_id"], ended["standing"]["status"]) == (str(started), "failed")
    assert ended["standing"]["error"] == "No recordings"


@pytest.mark.parametrize(
    ("what", "permission"), [("transcriptions", "transcriptions"), ("audits", "audits")]
)
def test_requests_out_of_scope_are_omitted(
    client: TestClient, login: Login, archive: Archive, what: str, permission: str
) -> None:
    if what == "transcriptions":
        keys = transcriptions(client)
    else:
        body = {"fiche_ids": ["900", "901"], "audit_config_id": str(archive.configs[0])}
        keys = client.post("/api/audits/batch", json=body).json()["event_ids"]
    reader = login({f"{permission}.read": "GROUP"}, groupes=["NORD"])
    assert [one["fiche_id"] for one in request_status(reader, what, *keys)] == ["901"]
    assert request_status(login({f"{permission}.read": "SELF"}), what, *keys) == []


def test_keys_of_another_kind_of_request_are_omitted(client: TestClient, archive: Archive) -> None:
    keys = transcriptions(client)
    assert request_status(client, "audits", *keys) == request_status(client, "reruns", *keys) == []


@pytest.mark.parametrize("keys", [[], [""], ["k"] * 201, ["x" * 301]])
def test_missing_invalid_or_too_many_keys_are_refused(client: TestClient, keys: list[str]) -> None:
    answered = client.get("/api/requests/audits", params={"key": keys})
    assert (answered.status_code, answered.json()["code"]) == (400, "VALIDATION_ERROR")
