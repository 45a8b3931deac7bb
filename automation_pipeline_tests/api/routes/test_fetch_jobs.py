"""Date range routes: cached days, and the jobs that fetch missing days."""

import asyncio
from typing import Any

import pytest
from fastapi.testclient import TestClient

from automation_pipeline.bootstrap import Services
from automation_pipeline.fiches.mirror import fetch_fiches
from automation_pipeline.fiches.routes import JobDetail, JobShown, Polled, RangeShown
from automation_pipeline.storage.outbox import OutboxRow
from automation_pipeline_tests.api.conftest import Login
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.crm import fiche
from automation_pipeline_tests.fiches.ranges import DAYS, HOOK, FetchJobHarness

PATH = "/api/fiches/status/by-date-range"
RANGE = {"startDate": "2026-02-02", "endDate": "2026-02-08"}
READS, ALL = {"fiches.read": "GROUP"}, {"fiches.read": "ALL"}


@pytest.fixture
def ranges(services: Services, clock: FakeClock) -> FetchJobHarness:
    created = FetchJobHarness(services.database, clock)
    created.sell(*DAYS)
    return created


def get(client: TestClient, path: str, status: int = 200, **query: Any) -> Any:
    answered = client.get(path, params=query or None)
    assert answered.status_code == status, answered.text
    return answered.json()


def test_cached_days_are_returned_and_a_job_fetches_the_rest(
    client: TestClient, ranges: FetchJobHarness
) -> None:
    ranges.prefetch(*DAYS[:2])
    document = get(client, PATH, **RANGE)
    RangeShown.model_validate(document)
    assert (
        document["total"],
        len(document["fiches"]),
        document["startDate"],
        document["endDate"],
    ) == (
        4,
        4,
        *RANGE.values(),
    )
    [job] = ranges.jobs
    assert document["meta"] == {
        "complete": False, "partial": True, "backgroundJobId": job.id, "totalDaysRequested": 7, "daysFetched": 2,
        "daysRemaining": 5, "daysCached": 2,
        "cacheCoverage": {
            "datesWithData": ["2026-02-02", "2026-02-03"],
            "datesMissing": [day.isoformat() for day in DAYS[2:]],
        },
    }  # fmt: skip
    assert ranges.crm.requests == []
    ranges.work_on(job.id)
    assert get(client, PATH, **RANGE)["total"] == 14


def test_a_fully_cached_range_starts_no_job(client: TestClient, ranges: FetchJobHarness) -> None:
    ranges.prefetch(*DAYS)
    document = get(client, PATH, **RANGE)
    RangeShown.model_validate(document)
    assert document["meta"] == {
        "complete": True,
        "partial": False,
        "totalDaysRequested": 7,
        "daysFetched": 7,
        "daysRemaining": 0,
        "daysCached": 7,
        "cacheCoverage": {"datesWithData": [day.isoformat() for day in DAYS], "datesMissing": []},
    }
    assert ranges.jobs == []


def test_a_range_in_the_future_is_empty_and_complete(
    client: TestClient, ranges: FetchJobHarness
) -> None:
    document = get(client, PATH, startDate="2027-01-01", endDate="2027-01-05")
    RangeShown.model_validate(document)
    assert (
        document["total"],
        document["fiches"],
        document["meta"]["complete"],
        document["meta"]["totalDaysRequested"],
    ) == (
        0,
        [],
        True,
        0,
    )


@every_case(
    ("query", "message"),
    [
        ({**RANGE, "startDate": "2026-02-09"}, "startDate must be before or equal to endDate"),
        ({**RANGE, "startDate": "02/02/2026"}, "Invalid date format. Use YYYY-MM-DD"),
        ({"startDate": "2026-02-02"}, "Invalid date format. Use YYYY-MM-DD"),
        ({**RANGE, "startDate": "2020-01-01"}, "A range may have at most 366 days"),
        ({**RANGE, "webhookUrl": "http://169.254.169.254/"}, "webhookUrl IP not allowed"),
        ({**RANGE, "webhookUrl": "nonsense"}, "Invalid webhookUrl format"),
        ({**RANGE, "webhookUrl": HOOK.url, "webhookSecret": "a\0b"}, "Invalid request"),
    ],
)
def test_an_invalid_range_is_refused(
    client: TestClient, ranges: FetchJobHarness, query: dict[str, str], message: str
) -> None:
    assert get(client, PATH, 400, **query)["error"] == message
    assert ranges.jobs == []


def test_a_refresh_needs_the_write_permission(login: Login, ranges: FetchJobHarness) -> None:
    ranges.prefetch(*DAYS)
    assert get(login(READS), PATH, 403, **RANGE, refresh="true")["error"] == "Missing permission"
    document = get(login({**READS, "fiches.write": "GROUP"}), PATH, **RANGE, refresh="true")
    RangeShown.model_validate(document)
    assert (
        document["meta"]["daysRemaining"],
        document["meta"]["daysCached"],
        document["meta"]["complete"],
    ) == (7, 7, False)
    assert ranges.requests[0].config == {
        "job_id": document["meta"]["backgroundJobId"],
        "refresh": True,
    }


def test_a_job_is_visible_to_its_creator_and_to_callers_with_full_scope(
    login: Login, client: TestClient, ranges: FetchJobHarness
) -> None:
    owner, other = login(READS, sub="1"), login(READS, sub="2")
    job_id = get(owner, PATH, **RANGE)["meta"]["backgroundJobId"]
    for viewer in (owner, login(ALL, sub="3"), client):
        assert get(viewer, f"/api/fiches/jobs/{job_id}")["data"]["createdBy"] == "user:1"
        assert [one["jobId"] for one in get(viewer, "/api/fiches/jobs")["data"]] == [job_id]
        assert get(viewer, "/api/fiches/webhooks/fiches", jobId=job_id)["jobId"] == job_id
    assert get(other, "/api/fiches/jobs")["data"] == []
    hidden = get(other, f"/api/fiches/jobs/{job_id}", 404)["error"]
    missing = get(other, "/api/fiches/jobs/nope", 404)["error"]
    assert (
        hidden.replace(job_id, "nope")
        == missing
        == get(client, "/api/fiches/jobs/nope", 404)["error"]
    )
    for requested in (job_id, "nope"):
        assert (
            get(other, "/api/fiches/webhooks/fiches", 404, jobId=requested)["error"]
            == f"Job {requested} not found"
        )
    assert get(other, PATH, **RANGE)["meta"]["backgroundJobId"] != job_id


def test_a_job_is_shown_with_its_deliveries_and_without_its_secret(
    client: TestClient, ranges: FetchJobHarness
) -> None:
    document = get(client, PATH, **RANGE, webhookUrl=HOOK.url, webhookSecret=HOOK.secret)
    job_id = document["meta"]["backgroundJobId"]
    assert ranges.jobs[0].webhook_secret == HOOK.secret
    ranges.work_on(job_id, webhook_every=1)
    shown = get(client, f"/api/fiches/jobs/{job_id}")
    assert HOOK.secret not in str(shown)
    JobDetail.model_validate(shown["data"])
    data = shown["data"]
    deliveries = data.pop("webhookDeliveries")
    now = "2026-05-04T10:00:00.000Z"
    assert data == {
        "jobId": job_id,
        "status": "complete",
        "startDate": "2026-02-02",
        "endDate": "2026-02-08",
        "progress": 100,
        "completedDays": 7,
        "totalDays": 7,
        "totalFiches": 14,
        "datesCompleted": [day.isoformat() for day in DAYS],
        "datesRemaining": [],
        "datesFailed": [],
        "error": None,
        "webhookUrl": HOOK.url,
        "createdBy": data["createdBy"],
        "createdAt": now,
        "updatedAt": now,
        "completedAt": now,
    }
    assert [one["event"] for one in deliveries] == ["complete", *["progress"] * 6]
    assert deliveries[0].pop("nextRetryAt")
    assert deliveries[0] == {
        "id": "7",
        "event": "complete",
        "status": "pending",
        "statusCode": None,
        "responseBody": None,
        "lastError": None,
        "attempt": 0,
        "createdAt": now,
        "sentAt": None,
    }
    listed = get(client, "/api/fiches/jobs?status=complete")
    JobShown.model_validate(listed["data"][0])
    assert (listed["count"], listed["limit"], listed["offset"]) == (1, 20, 0)
    assert get(client, "/api/fiches/jobs?status=failed")["count"] == 0


def test_a_poll_returns_the_fiches_in_scope(
    login: Login, client: TestClient, ranges: FetchJobHarness
) -> None:
    reader = login(READS, groupes=["NORD"])
    for caller, seen in ((client, 4), (reader, 0)):
        job_id = get(caller, PATH, **RANGE | {"endDate": "2026-02-03"})["meta"]["backgroundJobId"]
        before = get(caller, "/api/fiches/webhooks/fiches", jobId=job_id)
        Polled.model_validate(before)
        assert (before["event"], before["data"]["currentFichesCount"]) == ("progress", 0)
        ranges.work_on(job_id)
        after = get(caller, "/api/fiches/webhooks/fiches", jobId=job_id)
        Polled.model_validate(after)
        assert (after["event"], after["data"]["totalFiches"]) == ("complete", seen)
        assert after["data"]["currentFichesCount"] == len(after["data"]["partialData"]) == seen
        assert (after["jobId"], after["timestamp"]) == (job_id, "2026-05-04T10:00:00.000Z")
        assert (
            after["data"]["partialData"][:1]
            == [
                {
                    "ficheId": "02020",
                    "groupe": None,
                    "prospectNom": "MARTEL",
                    "prospectPrenom": "Odile",
                    "recordingsCount": 0,
                    "createdAt": "2026-02-03T09:12:00.000Z",
                }
            ][:seen]
        )
        assert after["data"]["dataUrl"] == f"{PATH}?startDate=2026-02-02&endDate=2026-02-03"
        ranges.delete_lists(*DAYS[:2])


@pytest.mark.parametrize(
    "about", [{"groupes": ["NORD"]}, {"crm_user": "42"}], ids=["GROUP", "SELF"]
)
def test_totals_exclude_fiches_out_of_scope(
    login: Login, client: TestClient, ranges: FetchJobHarness, about: dict[str, object]
) -> None:
    ranges.prefetch(*DAYS[:2])
    ranges.crm.add(fiche("02020", groupe="NORD"))
    ranges.crm.add(fiche("02021", groupe="SUD", attribution_user_id="43"))
    context = {"database": ranges.database, "source": ranges.crm, "clock": ranges.clock}
    asyncio.run(
        fetch_fiches(
            ["02020", "02021"], since=ranges.clock.now(), settle=lambda *_: None, **context
        )
    )
    reader = login({"fiches.read": "GROUP" if "groupes" in about else "SELF"}, **about)
    document = get(reader, PATH, **RANGE, webhookUrl=HOOK.url)
    job_id = document["meta"]["backgroundJobId"]

    def totals(caller: TestClient) -> list[int]:
        polled = get(caller, "/api/fiches/webhooks/fiches", jobId=job_id)
        shown, [listed] = (
            get(caller, f"/api/fiches/jobs/{job_id}"),
            get(caller, "/api/fiches/jobs")["data"],
        )
        return [document["totalFiches"] for document in (polled["data"], shown["data"], listed)]

    assert (document["total"], totals(reader), totals(client)) == (1, [1] * 3, [4] * 3)
    ranges.work_on(job_id, webhook_every=1)
    assert (totals(reader), totals(client)) == ([1] * 3, [14] * 3)
    messages = [each.payload["data"] for each in ranges.deliveries] + [
        each.payload for each in ranges.rows(OutboxRow)
    ]
    assert (len(ranges.deliveries), len(messages)) == (5, 5 + 6)
    assert not [
        document
        for document in messages
        if "totalFiches" in document or "currentFichesCount" in document
    ]


def test_a_poll_needs_a_valid_job_id(client: TestClient) -> None:
    [fault] = get(client, "/api/fiches/webhooks/fiches", 400)["details"]
    assert fault == {"field": "jobId", "message": "is required"}
    assert (
        get(client, "/api/fiches/webhooks/fiches", 400, jobId="../x")["details"][0]["field"]
        == "jobId"
    )
    assert get(client, "/api/fiches/jobs?status=odd", 400)["code"] == "VALIDATION_ERROR"


def test_required_parameters_are_marked_in_the_openapi_document(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    required = {
        path: {each["name"] for each in paths[path]["get"]["parameters"] if each["required"]}
        for path in (
            PATH,
            "/api/fiches/status/by-date",
            "/api/fiches/search",
            "/api/fiches/webhooks/fiches",
        )
    }
    assert list(required.values()) == [{"startDate", "endDate"}, {"date"}, {"date"}, {"jobId"}]
