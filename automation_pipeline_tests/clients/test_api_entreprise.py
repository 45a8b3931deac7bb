"""The client of API Entreprise."""

import json
from datetime import date
from typing import Any

import httpx
import pytest

from automation_pipeline.clients.registries import (
    UNKNOWN_COMPANY,
    RegistryFormatError,
    errors_of,
    extract_record,
)
from automation_pipeline.core.errors import PermanentError, TransientError
from automation_pipeline.enrichment.models import CompanyFields, SourceRecord
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.clients.mock_answers import failing_answer, json_answer, with_client
from automation_pipeline_tests.clients.registry_clients import (
    OTHER,
    SIREN,
    TOKEN,
    complaint,
    entreprise,
    extract,
    fetch,
)


def test_every_call_has_recipient_context_and_object() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.path == f"/hidden/v3/infogreffe/rcs/unites_legales/{SIREN}/extrait_kbis"
        assert dict(request.url.params) == {
            "recipient": "13002526500013",
            "context": "a reason",
            "object": "a matter",
        }
        assert request.headers["Authorization"] == f"Bearer {TOKEN}"
        return httpx.Response(200, json=extract())

    assert fetch(entreprise(answer), siret=f"{SIREN}00646").fields.rcs_city == "PARIS"


@every_case(
    ("status", "codes", "code", "message"),
    [
        (422, ("00201",), "INTERNAL_ERROR", "API_ENTREPRISE_CONTEXT"),
        (422, ("00202",), "INTERNAL_ERROR", "API_ENTREPRISE_OBJECT"),
        (422, ("00301", "00203"), "INTERNAL_ERROR", "API_ENTREPRISE_RECIPIENT"),
        (422, ("00301",), "INTERNAL_ERROR", "00301"),
        (401, ("00103",), "AUTH_ERROR", "API_ENTREPRISE_TOKEN"),
        (403, ("00100",), "FORBIDDEN", "status 403"),
        (404, ("02003",), "NOT_FOUND", "does not know the company"),
        (409, ("00015",), "SOURCE_UNAVAILABLE", "same request"),
        (451, ("00451",), "FORBIDDEN", "legal reasons"),
    ],
)
def test_an_error_response_names_the_setting_to_check(
    status: int, codes: tuple[str, ...], code: str, message: str
) -> None:
    error = fetch(entreprise(json_answer(complaint(*codes), status)))
    assert (error.error_code, error.http_status) == (code, status)
    assert message in error.message


@every_case(("headers", "wait"), [({}, 12.0), ({"Retry_After": "3"}, 3.0)])
def test_the_retry_delay_is_read_from_the_error_or_the_header(
    headers: dict[str, str], wait: float
) -> None:
    error = fetch(entreprise(json_answer(complaint("00429", retry_in=12), 429, **headers)))
    assert (error.error_code, error.retry_after_seconds) == ("RATE_LIMIT", wait)


@every_case(("status", "code"), [(404, "02003"), (422, "00301")])
def test_the_check_requests_an_unknown_company_and_accepts_its_error(
    status: int, code: str
) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert f"/{UNKNOWN_COMPANY}/" in request.url.path
        return httpx.Response(status, json=complaint(code))

    with_client(entreprise(answer), lambda one: one.check())


@every_case(
    ("answer", "kind", "message"),
    [
        (json_answer(complaint("00101"), 401), PermanentError, "API_ENTREPRISE_TOKEN"),
        (json_answer(complaint("00301", "00203"), 422), PermanentError, "API_ENTREPRISE_RECIPIENT"),
        (json_answer({"detail": "Not Found"}, 404), PermanentError, "status 404"),
        (json_answer(complaint("02999"), 502), TransientError, "status 502"),
        (failing_answer(httpx.ReadTimeout("x")), TransientError, "did not answer"),
    ],
)
def test_a_failed_check_names_the_problem(answer: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message) as caught:
        with_client(entreprise(answer), lambda one: one.check())
    assert TOKEN not in str(caught.value)


def read(document: Any) -> SourceRecord:
    return extract_record(json.dumps(document).encode(), SIREN)


def test_a_response_is_mapped_to_company_fields() -> None:
    assert read(extract()).fields == CompanyFields(
        legal_name="DANONE",
        trade_name="GERVAIS",
        creation_date=date(1955, 2, 1),
        active_status="A",
        naf_code="70.10Z",
        rcs_city="PARIS",
        registry_name="PARIS",
    )


@every_case(
    ("changed", "field", "value"),
    [
        (
            {"personne_morale": None, "personne_physique": {"nom": "MARTEL", "prenom": "Odile"}},
            "legal_name",
            "Odile MARTEL",
        ),
        ({"personne_morale": {"forme_juridique": {"code": "5599"}}}, "legal_form", "5599"),
        ({"personne_morale": {"forme_juridique": {"code": "SASh"}}}, "legal_form", None),
        ({"date_radiation": "31/01/2025"}, "active_status", "C"),
        ({"date_immatriculation": "13-10-2020"}, "creation_date", date(2020, 10, 13)),
        ({"nom_commercial": ""}, "trade_name", None),
        ({"greffe": None}, "rcs_city", None),
        ({"etablissement_principal": None}, "naf_code", None),
    ],
)
def test_variants_of_the_response_are_mapped(
    changed: dict[str, object], field: str, value: object
) -> None:
    assert getattr(read(extract(**changed)).fields, field) == value


def test_the_stored_document_excludes_the_extract_date() -> None:
    assert read(extract()).document == read(extract(date_extrait="05/05/2026")).document


@every_case("document", [{}, {"data": None}, {"data": {}}, extract(OTHER), extract(greffe="PARIS")])
def test_an_unknown_schema_or_another_company_is_a_format_error(document: Any) -> None:
    with pytest.raises(RegistryFormatError):
        read(document)


@every_case(
    ("document", "codes", "wait"),
    [
        (complaint("00203"), ("00203",), None),
        (complaint("00301", "00203"), ("00301", "00203"), None),
        (complaint("02002", retry_in=12), ("02002",), 12.0),
        (complaint("00429", retry_in=True), ("00429",), None),
        (complaint("s3cret", retry_in=-1), (), None),
        ({"errors": []}, (), None),
        ({"errors": ["The token is wrong."]}, (), None),
        ([], (), None),
    ],
)
def test_error_codes_and_retry_delay_are_parsed(
    document: Any, codes: tuple[str, ...], wait: float | None
) -> None:
    assert errors_of(json.dumps(document).encode()) == (codes, wait)


def test_unreadable_errors_have_no_codes() -> None:
    assert errors_of(None) == errors_of(b"<html>") == ((), None)
