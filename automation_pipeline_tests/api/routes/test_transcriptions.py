"""Transcription routes: requests, status, logs, transcripts and access."""

from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select

from automation_pipeline.bootstrap import Services
from automation_pipeline.fiches.tables import CallRecordingRow
from automation_pipeline.storage.history import write_notes
from automation_pipeline.storage.run_requests import RunRequestRow, filed_requests
from automation_pipeline.transcription.events import fiche_note
from automation_pipeline.transcription.models import TranscriptionPriority, TranscriptionRunRequest
from automation_pipeline.transcription.queries.runs import claim_next, save_transcripts
from automation_pipeline.transcription.routes import (
    FicheTranscription,
    RecordingShown,
    TranscriptionLines,
    TranscriptionQueued,
    TranscriptionsQueued,
)
from automation_pipeline.transcription.runs import fail_unplanned, join_or_start
from automation_pipeline_tests.api.conftest import Login
from automation_pipeline_tests.audits.archive import Archive
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.speech import transcript

PATH = "/api/transcriptions"
READ, WRITE = {"transcriptions.read": "GROUP"}, {"transcriptions.write": "GROUP"}


@pytest.fixture
def fiches(services: Services) -> Services:
    """Fiche 900 of SUD has two calls, one transcribed. Fiche 901 is of NORD."""
    archive = Archive(services.database)
    archive.put("900", calls=2, of_fiche_groupe="SUD")
    archive.put("901", calls=1, of_fiche_groupe="NORD")
    with services.database.transaction() as session:
        call = session.scalars(
            select(CallRecordingRow).where(CallRecordingRow.call_id == "9000")
        ).one()
        save_transcripts(session, {call.id: (transcript("tr_1"), [])})
        write_notes(
            session,
            fiche_note("run-1", "900", "START"),
            fiche_note("run-2", "900", "END", level="error"),
        )
    return services


def get(client: TestClient, path: str, status: int = 200, **query: Any) -> Any:
    answered = client.get(f"{PATH}{path}", params=query)
    assert answered.status_code == status, answered.text
    return answered.json()


def post(client: TestClient, path: str, body: Any = None, status: int = 200, **headers: str) -> Any:
    answered = client.post(f"{PATH}{path}", json=body, headers=headers)
    assert answered.status_code == status, answered.text
    return answered.json()


def keys(services: Services) -> dict[str, Any]:
    with services.database.reading() as session:
        rows = session.scalars(select(RunRequestRow).order_by(RunRequestRow.id)).all()
    return {row.request_key: row.config["priority"] for row in rows}


def test_the_transcription_status_has_the_reference_fields(
    client: TestClient, fiches: Services
) -> None:
    result = get(client, "/900/status")["data"]
    FicheTranscription.model_validate(result)
    recordings = result.pop("recordings")
    assert result == {
        "ficheId": "900",
        "total": 2,
        "transcribed": 1,
        "pending": 1,
        "percentage": 50,
        "run": None,
    }
    assert list(recordings[0]) == [
        "callId", "hasTranscription", "transcriptionId", "transcribedAt", "recordingDate", "recordingTime",
        "durationSeconds", "hasUrl",
    ]  # fmt: skip
    assert [(one["callId"], one["transcriptionId"]) for one in recordings] == [
        ("9000", "tr_1"),
        ("9001", None),
    ]
    assert get(client, "/77/status", 404)["error"] == "Fiche 77 not found"


def test_the_status_of_an_unfetched_fiche_shows_why_its_run_failed(
    client: TestClient, fiches: Services
) -> None:
    with fiches.database.transaction() as session:
        fail_unplanned(
            TranscriptionRunRequest("run-8", "77", TranscriptionPriority.NORMAL),
            "The CRM answered 503 for fiche 77.",
            session,
        )
    result = get(client, "/77/status")["data"]
    run = result.pop("run")
    assert result == {
        "ficheId": "77",
        "total": 0,
        "transcribed": 0,
        "pending": 0,
        "percentage": 0,
        "recordings": [],
    }
    assert (run["id"], run["state"], run["error"]) == (
        "run-8",
        "failed",
        "The CRM answered 503 for fiche 77.",
    )
    assert get(client, "/77/logs")["count"] > 0


def test_the_status_shows_the_run_and_the_owner_of_each_task(
    client: TestClient, fiches: Services
) -> None:
    database = fiches.database
    request = TranscriptionRunRequest("run-7", "900", TranscriptionPriority.HIGH)
    with database.transaction() as session:
        join_or_start(session, [request])
        assert claim_next(session, "host:1/ab", 1, lease_seconds=30, per_fiche=10)
    run = get(client, "/900/status")["data"]["run"]
    assert (run["id"], run["state"], run["priority"], run["targetTotal"]) == (
        "run-7",
        "processing",
        "high",
        1,
    )
    [task] = run["tasks"]
    assert (task["callId"], task["state"], task["owner"]) == ("9001", "working", "host:1/ab")
    assert 0 < task["secondsLeft"] <= 30


def test_the_log_of_a_fiche_can_be_filtered(client: TestClient, fiches: Services) -> None:
    result = get(client, "/900/logs")
    TranscriptionLines.model_validate(result)
    assert [line["message"] for line in result["data"]] == ["START", "END"]
    page = {name: value for name, value in result.items() if name != "data"}
    assert page == {
        "success": True, "count": 2, "total": 2, "trace_id": None, "limit": 200, "offset": 0,
    }  # fmt: skip
    result = get(client, "/900/logs", run_id="run-2", level="error", limit=5)
    assert ([line["message"] for line in result["data"]], result["trace_id"], result["limit"]) == (
        ["END"],
        "run-2",
        5,
    )
    assert get(client, "/900/logs", since="2999-01-01")["data"] == []
    refused = get(client, "/900/logs", 400, since="yesterday")
    assert refused["error"] == "Invalid since (expected ISO 8601 date-time)"
    assert get(client, "/900/logs", 400, limit=1001)["details"][0]["field"] == "limit"


def test_the_transcript_of_a_call_is_shown(client: TestClient, fiches: Services) -> None:
    result = get(client, "/900/recordings/9000")["data"]
    RecordingShown.model_validate(result)
    assert (result["transcription"]["text"], result["transcription"]["words"]) == (
        transcript("tr_1").text,
        [],
    )
    missing = "No transcription available for this recording"
    assert get(client, "/900/recordings/9001", 404)["error"] == missing
    assert get(client, "/900/recordings/77", 404)["error"] == "Recording not found"
    assert get(client, "/900/recordings/%00", 400)["code"] == "VALIDATION_ERROR"


@pytest.mark.parametrize(
    ("priority", "taken", "number"),
    [("high", "high", "10"), ("low", "low", "-10"), ("urgent", "normal", "0"), ("", "normal", "0")],
)
def test_requesting_one_fiche_files_a_run_with_its_priority(
    client: TestClient, fiches: Services, clock: FakeClock, priority: str, taken: str, number: str
) -> None:
    result = post(client, f"/900?priority={priority}")
    TranscriptionQueued.model_validate(result)
    key = f"transcribe-900-{round(clock.now().timestamp() * 1000)}"
    run_id = result.pop("run_id")
    assert result == {
        "success": True,
        "message": "Transcription job queued",
        "fiche_id": "900",
        "event_id": key,
    }
    with fiches.database.reading() as session:
        [filed] = filed_requests(session, [key])
    assert filed.config["run_id"] == run_id
    tags = {"automation/fiche_id": "900", "automation/trace_id": run_id, "dagster/priority": number}
    assert tags.items() <= filed.tags.items()
    assert keys(fiches) == {key: taken}


def test_a_batch_files_each_fiche_once_per_day(client: TestClient, fiches: Services) -> None:
    result = post(client, "/batch", {"fiche_ids": ["900", "901", "900"], "priority": "high"})
    TranscriptionsQueued.model_validate(result)
    asked = ["transcribe-900-2026-05-04", "transcribe-901-2026-05-04"]
    assert (result["fiche_ids"], result["event_ids"]) == (["900", "901"], asked)
    assert result["message"] == "2 transcription jobs queued"
    assert list(result["run_ids"]) == ["900", "901"]
    again = post(client, "/batch", {"fiche_ids": ["900", "901"]})
    assert (again["message"], again["event_ids"]) == ("0 transcription jobs queued", [])
    assert keys(fiches) == dict.fromkeys(asked, "high")


@pytest.mark.parametrize(
    "body", [{}, {"fiche_ids": "900"}, {"fiche_ids": [900]}, {"fiche_ids": []}]
)
def test_a_batch_needs_a_list_of_ids(
    client: TestClient, fiches: Services, body: dict[str, Any]
) -> None:
    refused = post(client, "/batch", body, 400)
    assert (refused["error"], refused["code"]) == (
        "Invalid request - fiche_ids array required",
        "VALIDATION_ERROR",
    )
    assert refused["details"]


def test_an_idempotency_key_requests_the_work_once(
    client: TestClient, fiches: Services, clock: FakeClock
) -> None:
    key = {"Idempotency-Key": "a-key"}
    result = post(client, "/900", **key)
    clock.advance_one_second()
    assert post(client, "/900", **key) == result
    assert len(keys(fiches)) == 1


def test_only_fiches_in_scope_can_be_read_or_transcribed(login: Login, fiches: Services) -> None:
    reader, writer = login(READ, groupes=["SUD"]), login(WRITE, groupes=["SUD"])
    for path in ("/900/status", "/900/logs", "/900/recordings/9000"):
        get(reader, path)
        get(writer, path, 403)
    for fiche_id in ("901", "77"):
        for path in ("status", "logs", "recordings/9010"):
            assert get(reader, f"/{fiche_id}/{path}", 404)["error"] == f"Fiche {fiche_id} not found"
        post(writer, f"/{fiche_id}", None, 404)
        post(writer, "/batch", {"fiche_ids": ["900", fiche_id]}, 404)
    assert keys(fiches) == {}
    post(writer, "/900")
    post(writer, "/batch", {"fiche_ids": ["900"]})
    post(reader, "/900", None, 403)
