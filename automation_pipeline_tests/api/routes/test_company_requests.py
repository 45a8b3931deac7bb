"""Company request routes: immediate results, background enrichment, and contract errors."""

import asyncio
import threading
from collections.abc import Generator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import func, select

from automation_pipeline.bootstrap import Services
from automation_pipeline.enrichment.models import REQUESTS, SourceApi
from automation_pipeline.enrichment.tables import CompanyRequestRow, EnrichmentJobRow
from automation_pipeline.storage.run_requests import RunRequestRow
from automation_pipeline_tests.api.conftest import MACHINE, Login, client_of
from automation_pipeline_tests.api.openapi_check import openapi_check
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.registries import (
    NO_BACKOFF,
    RATE_LIMIT,
    SIREN,
    FakeRegistry,
    record,
    registries,
)
from automation_pipeline_tests.waiting import wait_until

PATH = "/v1/requests"
LONG = 60.0


@pytest.fixture
def search() -> FakeRegistry:
    return FakeRegistry(record())


@pytest.fixture
def companies(api: FastAPI, services: Services, search: FakeRegistry) -> Generator[TestClient]:
    """A machine client and a registry that is always awaited. Validates responses against the
    OpenAPI document."""
    sources = {SourceApi.SEARCH: search}
    services.__dict__["registries"] = registries(
        services.database, sources, options=replace(NO_BACKOFF, sync_seconds=LONG)
    )
    with client_of(api, MACHINE) as created:
        created.event_hooks = {"response": [openapi_check(api)]}
        yield created


def without_waiting(services: Services, search: FakeRegistry) -> threading.Event:
    """Disables waiting. The registry responds once the returned event is set."""
    sources, gate = {SourceApi.SEARCH: search}, threading.Event()
    services.__dict__["registries"] = registries(
        services.database, sources, options=replace(NO_BACKOFF, sync_seconds=0)
    )

    async def hold(_: str) -> None:
        await asyncio.to_thread(gate.wait, LONG)

    search.before = hold
    return gate


def count(services: Services, table: Any) -> int:
    with services.database.reading() as session:
        return session.scalar(select(func.count()).select_from(table)) or 0


def test_an_enrichment_that_finishes_in_time_is_returned_immediately(
    companies: TestClient, services: Services
) -> None:
    created = companies.post(
        PATH, json={"siren": "552 032 534"}, headers={"X-Correlation-Id": "c-1"}
    )
    assert (created.status_code, created.headers["X-Correlation-Id"]) == (201, "c-1")
    document = created.json()
    assert (document["outcome"], document["enrichment_running"], document["job_id"]) == (
        "ENQUEUED",
        False,
        None,
    )
    assert (document["request"]["enrichment_status"], document["company"]["legal_name"]) == (
        "SUCCESS",
        "DANONE",
    )
    assert (document["company"]["vat_number"], document["company"]["field_sources"]["city"]) == (
        "FR27552032534",
        SourceApi.SEARCH,
    )
    assert [one["source_api"] for one in document["source_retrievals"]] == [SourceApi.SEARCH]
    with services.database.reading() as session:
        assert session.scalars(select(EnrichmentJobRow.correlation_id)).all() == ["c-1"]
        assert session.scalars(select(RunRequestRow.job)).all() == ["company_enrichment"]


def test_a_slow_enrichment_continues_in_the_background(
    companies: TestClient, services: Services, search: FakeRegistry
) -> None:
    gate = without_waiting(services, search)
    created = companies.post(PATH, json={"siren": SIREN})
    assert (
        created.status_code,
        created.json()["enrichment_running"],
        created.json()["company"],
    ) == (
        202,
        True,
        None,
    )
    one = f"{PATH}/{created.json()['request']['id']}"
    second = companies.post(PATH, json={"siret": "55203253400646"})
    assert (second.status_code, second.json()["outcome"]) == (202, "ATTACHED")
    gate.set()
    wait_until(lambda: not companies.get(one).json()["enrichment_running"])
    assert companies.get(one).json()["request"]["enrichment_status"] == "SUCCESS"
    # The second request looks up its establishment.
    assert search.calls == [
        (SIREN, None),
        (SIREN, "55203253400646"),
    ]


def test_a_fresh_company_is_returned_without_a_call(
    companies: TestClient, search: FakeRegistry
) -> None:
    companies.post(PATH, json={"siren": SIREN})
    again = companies.post(PATH, json={"siren": SIREN})
    assert (again.status_code, again.json()["outcome"]) == (201, "CACHE_HIT")
    assert len(search.calls) == 1


def test_an_idempotency_key_creates_one_company_request(
    companies: TestClient, services: Services
) -> None:
    first, again = (
        companies.post(PATH, json={"siren": SIREN}, headers={"Idempotency-Key": "k"})
        for _ in range(2)
    )
    assert (first.json(), again.headers["Idempotent-Replay"]) == (again.json(), "true")
    assert count(services, CompanyRequestRow) == 1
    other = companies.post(PATH, json={"siren": "732829320"}, headers={"Idempotency-Key": "k"})
    assert (other.status_code, other.json()["code"]) == (409, "CONFLICT")


@every_case(
    ("body", "status", "code", "field"),
    [
        ({}, 400, "MISSING_COMPANY_IDENTIFIER", "siren"),
        ({"siren": "12345"}, 400, "INVALID_SIREN_FORMAT", "siren"),
        ({"siret": "5520325340064"}, 400, "INVALID_SIRET_FORMAT", "siret"),
        ({"siren": SIREN, "siret": "73282932000074"}, 422, "SIREN_SIRET_MISMATCH", "siret"),
        ({"siren": "123456789", "strict": True}, 400, "INVALID_SIREN_FORMAT", "siren"),
        ({"siren": 5}, 400, "VALIDATION_ERROR", "siren"),
        ({"nonsense": 5}, 400, "VALIDATION_ERROR", "nonsense"),
    ],
)
def test_invalid_identifiers_are_refused_with_the_contract_codes(
    companies: TestClient,
    services: Services,
    body: dict[str, object],
    status: int,
    code: str,
    field: str,
) -> None:
    refused = companies.post(
        PATH, json=body, headers={"X-Request-Id": "r-1", "X-Correlation-Id": "c-1"}
    )
    document = refused.json()
    assert (refused.status_code, document["code"]) == (status, code)
    assert [fault["field"] for fault in document["details"]] == [field]
    assert document["details"][0]["reason"]
    assert (document["correlation_id"], document["request_id"]) == ("c-1", "r-1")
    assert set(document) == {
        "error",
        "code",
        "message",
        "details",
        "correlation_id",
        "request_id",
        "timestamp",
    }
    assert count(services, CompanyRequestRow) == 0


def test_a_wrong_check_digit_is_a_warning(companies: TestClient, search: FakeRegistry) -> None:
    search.add(record("123456789"))
    created = companies.post(PATH, json={"siren": "123456789"})
    assert created.status_code == 201
    assert created.json()["request"]["warnings"] == [
        "the check digit of the SIREN 123456789 is wrong"
    ]


def test_an_unknown_company_fails_with_a_reason(companies: TestClient) -> None:
    created = companies.post(PATH, json={"siren": "732829320"}).json()
    assert (created["request"]["enrichment_status"], created["company"]) == ("FAILED", None)
    assert created["request"]["enrichment_error"] == "API_RECHERCHE_ENTREPRISES:404:NOT_FOUND"


def test_a_manual_refresh_has_a_cooldown(
    companies: TestClient, services: Services, clock: FakeClock
) -> None:
    request_id = companies.post(PATH, json={"siren": SIREN}).json()["request"]["id"]
    action = f"{PATH}/{request_id}:refresh-company"
    refreshed = companies.post(action)
    assert (
        refreshed.status_code,
        refreshed.json()["outcome"],
        refreshed.json()["enrichment_running"],
    ) == (
        202,
        "ENQUEUED",
        True,
    )
    assert companies.post(action).json()["outcome"] == "ATTACHED"
    companies.post(PATH, json={"siren": SIREN})
    clock.advance(timedelta(minutes=1))
    refused = companies.post(action)
    assert (refused.status_code, refused.json()["code"]) == (409, "CONFLICT")
    assert "2026-05-04T10:15:00" in refused.json()["message"]
    assert count(services, EnrichmentJobRow) == 2
    outcomes = {
        labels: amount
        for (name, labels), amount in services.meter.drain().items()
        if name == REQUESTS
    }
    assert outcomes == {'outcome="ENQUEUED"': 2, 'outcome="ATTACHED"': 2}


def test_reading_a_stale_company_starts_a_refresh(companies: TestClient, clock: FakeClock) -> None:
    one = f"{PATH}/{companies.post(PATH, json={'siren': SIREN}).json()['request']['id']}"
    assert companies.get(one).json()["enrichment_running"] is False
    clock.advance(timedelta(days=30))
    document = companies.get(one).json()
    assert (document["enrichment_running"], document["company"]["legal_name"]) == (True, "DANONE")
    jobs = companies.get(f"{one}/jobs").json()
    assert (jobs["count"], [job["trigger"] for job in jobs["jobs"]]) == (
        2,
        ["REQUEST_OPENED", "REQUEST_CREATED"],
    )
    assert [source["status"] for source in jobs["jobs"][1]["sources"]] == ["SUCCESS"]


def test_requests_are_listed_newest_first(companies: TestClient, search: FakeRegistry) -> None:
    search.add(record("732829320"))
    for siren in (SIREN, "732829320", SIREN):
        companies.post(PATH, json={"siren": siren})
    listed = companies.get(PATH).json()
    assert [one["company_siren"] for one in listed["requests"]] == [SIREN, "732829320", SIREN]
    page = companies.get(PATH, params={"siren": SIREN, "limit": 1, "offset": 1}).json()
    assert (page["count"], page["requests"][0]["id"]) == (1, listed["requests"][2]["id"])
    assert companies.get(PATH, params={"siren": "x"}).status_code == 400


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", f"{PATH}/99"), ("GET", f"{PATH}/99/jobs"), ("POST", f"{PATH}/99:refresh-company")],
)
def test_an_unknown_company_request_is_404(companies: TestClient, method: str, path: str) -> None:
    refused = companies.request(method, path)
    assert (refused.status_code, refused.json()["code"]) == (404, "NOT_FOUND")


def test_get_on_an_action_is_405(companies: TestClient) -> None:
    companies.event_hooks = {}
    refused = companies.get(f"{PATH}/1:refresh-company")
    assert (refused.status_code, refused.headers["Allow"], refused.json()["code"]) == (
        405,
        "POST",
        "METHOD_NOT_ALLOWED",
    )


def test_a_reader_cannot_create_a_company_request(companies: TestClient, login: Login) -> None:
    reader = login({"enrichment.read": "ALL"})
    assert reader.get(PATH).status_code == 200
    refused = reader.post(PATH, json={"siren": SIREN})
    assert (refused.status_code, refused.json()["message"]) == (403, "Missing permission")


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_a_missing_registry_setting_is_named(companies: TestClient, services: Services) -> None:
    services.__dict__["registries"] = registries(services.database, {})
    refused = companies.post(PATH, json={"siren": SIREN})
    assert (refused.status_code, refused.json()["code"]) == (503, "CONFIGURATION_ERROR")
    assert "RECHERCHE_ENTREPRISES_BASE_URL" in refused.json()["message"]
    assert count(services, CompanyRequestRow) == 0


def test_a_429_from_a_registry_leaves_the_request_pending(
    companies: TestClient, search: FakeRegistry
) -> None:
    search.refuse_everything(RATE_LIMIT)
    created = companies.post(PATH, json={"siren": SIREN}).json()
    assert (created["request"]["enrichment_status"], created["enrichment_running"]) == (
        "PENDING",
        True,
    )
    assert created["request"]["enrichment_error"] is None
