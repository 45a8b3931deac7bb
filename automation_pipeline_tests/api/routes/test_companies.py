"""Company and source routes, which read stored data without calling a registry."""

from collections.abc import Generator
from dataclasses import replace
from datetime import timedelta

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from automation_pipeline.bootstrap import Services
from automation_pipeline.enrichment.models import SourceApi
from automation_pipeline.enrichment.sources import set_rest, take_call
from automation_pipeline_tests.api.conftest import MACHINE, client_of
from automation_pipeline_tests.api.openapi_check import openapi_check
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.registries import (
    NO_BACKOFF,
    SIREN,
    FakeRegistry,
    record,
    registries,
)

PATIENT = replace(NO_BACKOFF, sync_seconds=60.0)


@pytest.fixture
def client(api: FastAPI, services: Services) -> Generator[TestClient]:
    sources = {
        SourceApi.SEARCH: FakeRegistry(record()),
        SourceApi.INPI: FakeRegistry(record(city="Lyon")),
    }
    services.__dict__["registries"] = registries(
        services.database, sources, options=PATIENT, calls_a_day=9
    )
    with client_of(api, MACHINE) as created:
        created.event_hooks = {"response": [openapi_check(api)]}
        yield created


def test_a_company_is_shown_with_the_source_of_each_field(
    client: TestClient, services: Services
) -> None:
    refused = client.get(f"/v1/companies/{SIREN}")
    assert (refused.status_code, refused.json()["code"]) == (404, "NOT_FOUND")
    request_id = client.post("/v1/requests", json={"siren": SIREN}).json()["request"]["id"]
    company = client.get(f"/v1/companies/{SIREN}").json()
    assert (company["legal_name"], company["field_sources"]["legal_name"]) == (
        "DANONE",
        SourceApi.SEARCH,
    )
    assert client.get(f"/v1/requests/{request_id}").json()["company"] == company


@pytest.mark.parametrize("siren", ["12345678", "1234567890", "x"])
def test_a_malformed_siren_is_refused(client: TestClient, siren: str) -> None:
    refused = client.get(f"/v1/companies/{siren}")
    assert (refused.status_code, refused.json()["code"]) == (400, "VALIDATION_ERROR")


def test_sources_show_their_rest_and_number_of_calls(
    client: TestClient, services: Services, clock: FakeClock
) -> None:
    with services.database.transaction() as session:
        take_call(session, SourceApi.SEARCH, None, clock.now())
        set_rest(session, SourceApi.INPI, timedelta(minutes=10), "Too many calls.", clock.now())
    document = {one["source_api"]: one for one in client.get("/v1/sources").json()["sources"]}
    search, inpi, rcs = (document[source] for source in SourceApi)
    assert (search["calls_today"], search["calls_a_day"], search["resting_until"]) == (1, 9, None)
    assert (inpi["resting_until"], inpi["reason"]) == (
        "2026-05-04T10:10:00.000Z",
        "Too many calls.",
    )
    assert [one["is_configured"] for one in (search, inpi, rcs)] == [True, True, False]
    assert (rcs["calls_a_day"], rcs["failures"]) == (None, 0)
    clock.advance(timedelta(minutes=10))
    inpi = client.get("/v1/sources").json()["sources"][1]
    assert (inpi["resting_until"], inpi["reason"], inpi["calls_today"]) == (None, None, 0)
