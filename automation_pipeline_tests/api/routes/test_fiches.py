"""Fiche routes: search, details, status, batches and access."""

import asyncio
from datetime import date, timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import update

from automation_pipeline.bootstrap import Services
from automation_pipeline.core.coordination import Semaphore
from automation_pipeline.core.errors import TransientError
from automation_pipeline.fiches.mirror import fetch_fiches, revalidate_day
from automation_pipeline.fiches.routes import (
    CacheRow,
    DayShown,
    FicheDetails,
    FicheStatus,
    Found,
    RecordingRow,
)
from automation_pipeline.fiches.tables import CallRecordingRow
from automation_pipeline.storage.claims import DatabasePermits
from automation_pipeline_tests.api.conftest import Login
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.crm import FakeFicheSource, fiche, recording, summary

DAY = date(2026, 2, 3)
URL = "https://records.example.test/1.mp3"
READS = {"fiches.read": "GROUP"}


@pytest.fixture
def crm(services: Services) -> FakeFicheSource:
    """Three fiches: one of NORD, one of SUD, and one known only from the sales list."""
    source = FakeFicheSource(
        [fiche("1", recording("11"), groupe="NORD"), fiche("2", groupe="SUD"), fiche("3")]
    )
    source.set_sales(DAY, *(summary(name, recording(f"{name}1")) for name in "123"))
    semaphore = Semaphore(DatabasePermits(services.database), "crm", 3, "test")
    services.__dict__.update(crm=source, sales_list_semaphore=semaphore)
    context = {"database": services.database, "source": source, "clock": services.clock}
    asyncio.run(revalidate_day(DAY, **context, semaphore=semaphore))
    asyncio.run(
        fetch_fiches(["1", "2"], since=services.clock.now(), settle=lambda *_: None, **context)
    )
    source.requests.clear()
    return source


def get(client: TestClient, path: str, status: int = 200, **query: Any) -> Any:
    answered = client.get(path, params=query or None)
    assert answered.status_code == status, answered.text
    return answered.json()


def test_a_search_queries_the_crm_for_one_day(client: TestClient, crm: FakeFicheSource) -> None:
    crm.set_sales(DAY, summary("1"), summary("9"))
    found = get(client, "/api/fiches/search", date="2026-02-03")
    assert crm.requests == ["2026-02-03"]
    Found.model_validate(found)
    assert [(each["id"], each["status"]["hasData"]) for each in found["fiches"]] == [
        ("1", True),
        ("9", False),
    ]
    assert {name: found["fiches"][0][name] for name in found["fiches"][0] if name != "status"} == {
        "id": "1",
        "cle": "5f0c77aa91e34b0c8d2e1f6a7b8c9d00",
        "nom": "MARTEL",
        "prenom": "Odile",
        "telephone": "0600000001",
        "telephone_2": None,
        "email": "odile.martel@example.test",
        "statut": "Vente",
        "date_insertion": "2026-02-03T09:12:00.000Z",
        "date_modification": None,
        "recordings": [],
    }
    assert set(found["fiches"][0]["status"]) == {"hasData", "transcription", "audit"}
    short = get(client, "/api/fiches/search", date="2026-02-03", includeStatus="false")
    assert (short["total"], "status" in short["fiches"][0]) == (2, False)


def test_a_search_shows_only_fiches_in_scope(login: Login, crm: FakeFicheSource) -> None:
    found = get(login(READS, groupes=["NORD"]), "/api/fiches/search", date="2026-02-03")
    assert ([each["id"] for each in found["fiches"]], found["total"]) == (["1"], 1)
    assert found["fiches"][0]["recordings"] == [
        {
            "call_id": "11",
            "start_time": "2026-02-03T09:14:05.000Z",
            "duration_seconds": 742,
            "direction": "out",
            "from_number": "33100000001",
            "to_number": "33600000001",
            "answered": True,
            "recording_url": None,
        }
    ]
    with_audio = login({**READS, "recordings.read": "GROUP"}, groupes=["NORD"])
    [one] = get(with_audio, "/api/fiches/search", date="2026-02-03")["fiches"]
    assert one["recordings"][0]["recording_url"] == URL
    mine = get(
        login({"fiches.read": "SELF"}, crm_user="42"), "/api/fiches/search", date="2026-02-03"
    )
    assert [each["id"] for each in mine["fiches"]] == ["1", "2"]
    assert (
        get(login({"fiches.read": "SELF"}), "/api/fiches/search", date="2026-02-03")["total"] == 0
    )


@pytest.mark.parametrize(
    "query", [{}, {"date": ""}, {"date": "03/02/2026"}, {"date": "2026-02-30"}]
)
def test_a_search_needs_a_valid_date(
    client: TestClient, crm: FakeFicheSource, query: dict[str, str]
) -> None:
    refused = get(client, "/api/fiches/search", 400, **query)
    assert (refused["error"], refused["code"]) == (
        "Missing or invalid date parameter (YYYY-MM-DD required)",
        "VALIDATION_ERROR",
    )
    assert crm.requests == []


def test_a_search_during_a_crm_outage_is_502(client: TestClient, crm: FakeFicheSource) -> None:
    crm.refuse_everything(TransientError("The CRM does not answer."))
    refused = get(client, "/api/fiches/search", 502, date="2026-02-03")
    assert (refused["error"], refused["code"]) == ("The CRM does not answer.", "EXTERNAL_API_ERROR")


def test_a_search_without_a_crm_is_a_configuration_error(client: TestClient) -> None:
    assert (
        get(client, "/api/fiches/search", 503, date="2026-02-03")["code"] == "CONFIGURATION_ERROR"
    )


def test_details_come_from_the_mirror(client: TestClient, crm: FakeFicheSource) -> None:
    shown = get(client, "/api/fiches/1")
    FicheDetails.model_validate(shown)
    assert crm.requests == []
    assert (shown["fiche_id"], shown["information"]["groupe"], shown["state"]) == (
        "1",
        "NORD",
        "full details",
    )
    assert shown["recordings"][0]["recording_url"] == URL
    assert shown["details_fetched_at"] == "2026-05-04T10:00:00.000Z"


def test_missing_or_expired_details_are_fetched(
    client: TestClient, crm: FakeFicheSource, clock: FakeClock
) -> None:
    assert get(client, "/api/fiches/3")["state"] == "full details"
    clock.advance(timedelta(hours=241))
    get(client, "/api/fiches/1")
    get(client, "/api/fiches/1", refresh="false")
    assert crm.requests == ["3", "1"]


def test_a_refresh_fetches_from_the_crm(
    client: TestClient, crm: FakeFicheSource, clock: FakeClock
) -> None:
    clock.advance_one_second()
    crm.add(fiche("1", groupe="OUEST"))
    assert get(client, "/api/fiches/1", refresh="true")["information"]["groupe"] == "OUEST"
    assert crm.requests == ["1"]


def test_a_refresh_needs_the_write_permission(login: Login, crm: FakeFicheSource) -> None:
    reader = login(READS, groupes=["NORD"])
    assert get(reader, "/api/fiches/1", 403, refresh="true")["error"] == "Missing permission"
    narrow = login({"fiches.read": "ALL", "fiches.write": "GROUP"}, groupes=["NORD"])
    get(narrow, "/api/fiches/2", 404, refresh="true")
    assert crm.requests == []
    get(narrow, "/api/fiches/1", refresh="true")


@pytest.mark.parametrize(("refresh", "age"), [("true", 1), ("false", 241)])
@pytest.mark.parametrize(
    ("scope", "moved"), [("GROUP", {"groupe": "SUD"}), ("SELF", {"attribution_user_id": "43"})]
)
def test_a_fiche_that_moved_out_of_scope_is_hidden_after_the_fetch(
    login: Login,
    crm: FakeFicheSource,
    clock: FakeClock,
    scope: str,
    moved: dict[str, str],
    refresh: str,
    age: int,
) -> None:
    caller = login({"fiches.read": scope, "fiches.write": scope}, groupes=["NORD"], crm_user="42")
    get(caller, "/api/fiches/1")
    clock.advance(timedelta(hours=age))
    crm.add(fiche("1", **{"groupe": "NORD", **moved}))
    result = get(caller, "/api/fiches/1", 404, refresh=refresh)
    assert (crm.requests, result["error"]) == (["1"], "Fiche 1 not found")
    assert result["code"] == get(caller, "/api/fiches/77", 404)["code"]


def test_expired_details_are_shown_during_a_crm_outage(
    client: TestClient, crm: FakeFicheSource, clock: FakeClock
) -> None:
    clock.advance(timedelta(days=30))
    crm.refuse_everything(TransientError("The CRM does not answer."))
    assert get(client, "/api/fiches/1")["state"] == "full details"
    assert get(client, "/api/fiches/1", refresh="true")["information"]["groupe"] == "NORD"
    assert get(client, "/api/fiches/3", 502)["code"] == "EXTERNAL_API_ERROR"
    assert get(client, "/api/fiches/77", 502)["error"] == "The CRM does not answer."


def test_a_fiche_unknown_to_the_crm_is_404_unless_mirrored(
    client: TestClient, crm: FakeFicheSource
) -> None:
    crm.remove("1", "3")
    for fiche_id in ("77", "3", "77"):
        assert get(client, f"/api/fiches/{fiche_id}", 404)["error"] == f"Fiche {fiche_id} not found"
    assert get(client, "/api/fiches/1")["information"]["groupe"] == "NORD"


GRANTS_WITHOUT_AUDIO = [READS, {"fiches.read": "ALL", "recordings.read": "SELF"}]


@pytest.mark.parametrize(
    "grants", GRANTS_WITHOUT_AUDIO, ids=["without the permission", "out of its reach"]
)
def test_audio_urls_need_the_recordings_permission(
    login: Login, crm: FakeFicheSource, grants: dict[str, str]
) -> None:
    without_audio = login(grants, groupes=["NORD"], crm_user="9999")
    shown = get(without_audio, "/api/fiches/1")
    assert "records.example.test" not in str(shown)
    FicheDetails.model_validate(shown)
    assert "records.example.test" not in str(get(without_audio, "/api/fiches/1/mirror"))
    with_audio = login({**READS, "recordings.read": "GROUP"}, groupes=["NORD"])
    assert get(with_audio, "/api/fiches/1")["recordings"][0]["recording_url"] == URL
    assert get(with_audio, "/api/fiches/1/mirror")["data"]["recordings"][0]["recording_url"] == URL


def test_transcripts_need_the_recordings_permission(
    login: Login, crm: FakeFicheSource, services: Services
) -> None:
    with services.database.transaction() as session:
        session.execute(update(CallRecordingRow).values(transcription_text="Bonjour"))
    without_audio = login(READS, groupes=["NORD"])
    with_audio = login({**READS, "recordings.read": "GROUP"}, groupes=["NORD"])
    for path in ("/api/fiches/1", "/api/fiches/1/mirror"):
        assert "Bonjour" not in str(get(without_audio, path))
        assert "Bonjour" in str(get(with_audio, path))


@pytest.mark.parametrize("path", ["", "/cache", "/status"])
def test_hidden_and_missing_fiches_look_the_same(
    login: Login, crm: FakeFicheSource, path: str
) -> None:
    reader = login(READS, groupes=["NORD"])
    get(reader, f"/api/fiches/1{path}")
    answers = [get(reader, f"/api/fiches/{fiche_id}{path}", 404) for fiche_id in ("2", "3", "77")]
    message = [
        answered["error"].replace(name, "N")
        for answered, name in zip(answers, ("2", "3", "77"), strict=True)
    ]
    assert len(set(message)) == 1
    assert crm.requests == []


@pytest.mark.parametrize("path", ["", "/cache", "/status"])
def test_a_non_numeric_fiche_id_is_400(client: TestClient, path: str) -> None:
    assert get(client, f"/api/fiches/x1{path}", 400)["details"][0]["field"] == "fiche_id"


def test_the_cache_row_of_a_fiche_is_shown(client: TestClient, crm: FakeFicheSource) -> None:
    row = get(client, "/api/fiches/1/cache")["data"]
    CacheRow.model_validate(row)
    assert row == {
        "ficheId": "1", "groupe": "NORD", "prospectNom": "MARTEL", "prospectPrenom": "Odile", "recordingsCount": 1,
        "fetchedAt": "2026-05-04T10:00:00.000Z", "expiresAt": "2026-05-14T10:00:00.000Z",
    }  # fmt: skip
    assert get(client, "/api/fiches/77/cache", 404)["error"] == "Fiche not cached"


def test_the_status_of_one_fiche_is_shown(client: TestClient, crm: FakeFicheSource) -> None:
    status = get(client, "/api/fiches/1/status")["data"]
    FicheStatus.model_validate(status)
    assert (status["hasData"], status["transcription"]["total"], status["audit"]["total"]) == (
        True,
        1,
        0,
    )
    assert get(client, "/api/fiches/77/status", 404)["error"] == "Fiche not found in database"


def test_batch_status_is_empty_for_hidden_fiches(login: Login, crm: FakeFicheSource) -> None:
    reader = login(READS, groupes=["NORD"])
    asked = {"ficheIds": ["1", "2", "3", "77"]}
    document = reader.post("/api/fiches/status/batch", json=asked).json()["data"]
    assert [document[name]["hasData"] for name in asked["ficheIds"]] == [True, False, False, False]
    empty = {name: {**document[name], "ficheId": ""} for name in asked["ficheIds"][1:]}
    assert empty["2"] == empty["3"] == empty["77"]
    for status in document.values():
        FicheStatus.model_validate(status)


@pytest.mark.parametrize("body", [{}, {"ficheIds": "1"}, {"ficheIds": {"0": "1"}}])
def test_a_batch_without_a_list_is_400(client: TestClient, body: dict[str, object]) -> None:
    answered = client.post("/api/fiches/status/batch", json=body)
    assert (answered.status_code, answered.json()["error"]) == (400, "ficheIds must be an array")


@pytest.mark.parametrize("ids", [[1], [""], ["1"] * 1001, ["\0"], [None]])
def test_a_batch_with_invalid_ids_is_400(client: TestClient, ids: list[object]) -> None:
    answered = client.post("/api/fiches/status/batch", json={"ficheIds": ids})
    assert (answered.status_code, answered.json()["error"]) == (400, "Invalid ficheIds")


def test_the_fiches_of_a_cached_day_are_shown(
    client: TestClient, login: Login, crm: FakeFicheSource
) -> None:
    day = get(client, "/api/fiches/status/by-date", date="2026-02-03")["data"]
    DayShown.model_validate(day)
    assert (day["date"], day["total"], [row["ficheId"] for row in day["fiches"]]) == (
        "2026-02-03",
        3,
        ["1", "2", "3"],
    )
    first = {name: value for name, value in day["fiches"][0].items() if name != "audit"}
    assert first == {
        "ficheId": "1",
        "groupe": "NORD",
        "agenceNom": "7-TEAMR1",
        "prospectNom": "MARTEL",
        "prospectPrenom": "Odile",
        "prospectEmail": "odile.martel@example.test",
        "prospectTel": "0600000001",
        "fetchedAt": "2026-05-04T10:00:00.000Z",
        "createdAt": "2026-02-03T09:12:00.000Z",
        "transcription": {
            "total": 1,
            "transcribed": 0,
            "pending": 1,
            "percentage": 0,
            "isComplete": False,
            "lastTranscribedAt": None,
        },
        "recordings": [
            {
                "id": "1",
                "callId": "11",
                "hasTranscription": False,
                "transcribedAt": None,
                "startTime": "2026-02-03T09:14:05.000Z",
                "durationSeconds": 742,
            }
        ],
    }
    page = get(client, "/api/fiches/status/by-date", date="2026-02-03", limit=1, offset=1)["data"]
    assert (page["total"], [row["ficheId"] for row in page["fiches"]]) == (3, ["2"])
    mine = get(login(READS, groupes=["NORD"]), "/api/fiches/status/by-date", date="2026-02-03")[
        "data"
    ]
    assert (mine["total"], [row["ficheId"] for row in mine["fiches"]]) == (1, ["1"])
    assert crm.requests == []
    refused = get(client, "/api/fiches/status/by-date", 400, date="yesterday")
    assert refused["error"] == "Invalid date format. Use YYYY-MM-DD"


def test_recordings_of_a_fiche_are_listed_with_their_fields(
    client: TestClient, login: Login, crm: FakeFicheSource
) -> None:
    result = get(client, "/api/recordings/1")
    [row] = result["data"]
    RecordingRow.model_validate(row)
    assert result["count"] == 1
    assert row == {
        "id": "1",
        "ficheId": "1",
        "callId": "11",
        "recordingUrl": URL,
        "recordingDate": "03/02/2026",
        "recordingTime": "10:14",
        "uuid": None,
        "startTime": "2026-02-03T09:14:05.000Z",
        "durationSeconds": 742,
        "direction": "out",
        "fromNumber": "33100000001",
        "toNumber": "33600000001",
        "answered": True,
        "vanishedAt": None,
        "hasTranscription": False,
        "transcriptionId": None,
        "transcriptionText": None,
        "transcriptionLanguageCode": None,
        "transcriptionLanguageProbability": None,
        "transcribedAt": None,
    }
    assert get(client, "/api/recordings/77", 404)["error"] == "Fiche 77 not found"
    with_audio = login({"recordings.read": "GROUP"}, groupes=["NORD"])
    assert get(with_audio, "/api/recordings/1")["count"] == 1
    get(with_audio, "/api/recordings/2", 404)
    get(login(READS, groupes=["NORD"]), "/api/recordings/1", 403)
