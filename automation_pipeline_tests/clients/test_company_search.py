"""The client of the Recherche d'entreprises: one call, what it asks for, and who is not found."""

from typing import Any

import httpx
import pytest

from automation_pipeline.clients.registries.company_search import PROBE_SIREN
from automation_pipeline.core.errors import PermanentError, TransientError
from automation_pipeline_tests.clients.registers import (
    OTHER,
    SIREN,
    SIRET,
    fetch,
    found,
    raising,
    saying,
    search,
    unit,
    using,
)
from automation_pipeline_tests.tables import every_case


@every_case("siret", [None, SIRET])
def test_one_call_asks_for_the_company_for_all_that_is_read_and_for_no_officers(
    siret: str | None,
) -> None:
    requests: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(200, json=found(unit()))

    record = fetch(search(answer), siret=siret)
    assert (record.siren, record.said.legal_name) == (SIREN, "DANONE")
    (request,) = requests
    assert (request.method, request.url.path) == ("GET", "/hidden/search")
    params = request.url.params
    assert (params["q"], params["per_page"], params["minimal"]) == (siret or SIREN, "1", "true")
    included = {"siege", "complements", "finances"} | (
        {"matching_etablissements"} if siret else set()
    )
    assert set(params["include"].split(",")) == included
    assert "Authorization" not in request.headers


def test_an_establishment_is_looked_up_and_a_closed_one_is_a_warning() -> None:
    other = f"{SIREN}00018"
    closed = {"siret": other, "etat_administratif": "F", "date_fermeture": "2020-06-30"}
    record = fetch(search(saying(found(unit(matching_etablissements=[closed])))), siret=other)
    assert record.warnings == (f"The establishment {other} is closed since 2020-06-30.",)
    error = fetch(search(saying(found(unit()))), siret=other)
    assert (error.error_code, error.http_status) == ("NOT_FOUND", 200)


@every_case("units", [[], [unit(OTHER)]])
def test_nobody_and_somebody_else_are_not_found(units: list[Any]) -> None:
    error = fetch(search(saying(found(*units))))
    assert (error.error_code, error.http_status, error.retryable) == ("NOT_FOUND", 200, False)


@every_case("document", [found(unit(SIREN)), found()])
def test_the_check_is_content_with_any_answer_of_the_service(document: object) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.params["q"] == PROBE_SIREN
        return httpx.Response(200, json=document)

    using(search(answer), lambda one: one.check())


@every_case(
    ("answer", "kind"),
    [
        (saying({}, 404), PermanentError),
        (saying({}, 503), TransientError),
        (saying([]), PermanentError),
        (raising(httpx.ConnectError("x")), TransientError),
    ],
)
def test_the_check_says_what_is_wrong(answer: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="Recherche d'entreprises"):
        using(search(answer), lambda one: one.check())
