"""The client of the Recherche d'entreprises API."""

import json
from datetime import date
from typing import Any

import httpx
import pytest

from automation_pipeline.clients.registries import SEARCH_PROBE_SIREN, search_record
from automation_pipeline.core.errors import PermanentError, TransientError
from automation_pipeline.enrichment.models import CompanyFields, SourceRecord
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.clients.mock_answers import failing_answer, json_answer, with_client
from automation_pipeline_tests.clients.registry_clients import (
    OTHER,
    SIREN,
    SIRET,
    fetch,
    found,
    search,
    seat,
    unit,
)


@every_case("siret", [None, SIRET])
def test_one_call_requests_only_the_sections_that_are_read(
    siret: str | None,
) -> None:
    requests: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(200, json=found(unit()))

    record = fetch(search(answer), siret=siret)
    assert (record.siren, record.fields.legal_name) == (SIREN, "DANONE")
    (request,) = requests
    assert (request.method, request.url.path) == ("GET", "/hidden/search")
    params = request.url.params
    assert (params["q"], params["per_page"], params["minimal"]) == (siret or SIREN, "1", "true")
    included = {"siege", "complements", "finances"} | (
        {"matching_etablissements"} if siret else set()
    )
    assert set(params["include"].split(",")) == included
    assert "Authorization" not in request.headers


def test_an_establishment_is_looked_up_by_siret_and_a_closed_one_adds_a_warning() -> None:
    other = f"{SIREN}00018"
    closed = {"siret": other, "etat_administratif": "F", "date_fermeture": "2020-06-30"}
    record = fetch(search(json_answer(found(unit(matching_etablissements=[closed])))), siret=other)
    assert record.warnings == (f"The establishment {other} is closed since 2020-06-30.",)
    error = fetch(search(json_answer(found(unit()))), siret=other)
    assert (error.error_code, error.http_status) == ("NOT_FOUND", 200)


@every_case("units", [[], [unit(OTHER)]])
def test_an_empty_result_or_another_company_is_not_found(units: list[Any]) -> None:
    error = fetch(search(json_answer(found(*units))))
    assert (error.error_code, error.http_status, error.retryable) == ("NOT_FOUND", 200, False)


@every_case("document", [found(unit(SIREN)), found()])
def test_the_check_accepts_any_well_formed_response(document: object) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.params["q"] == SEARCH_PROBE_SIREN
        return httpx.Response(200, json=document)

    with_client(search(answer), lambda one: one.check())


@every_case(
    ("answer", "kind"),
    [
        (json_answer({}, 404), PermanentError),
        (json_answer({}, 503), TransientError),
        (json_answer([]), PermanentError),
        (failing_answer(httpx.ConnectError("x")), TransientError),
    ],
)
def test_a_failed_check_names_the_problem(answer: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="Recherche d'entreprises"):
        with_client(search(answer), lambda one: one.check())


MASK = "[NON-DIFFUSIBLE]"


def read(*units: Any) -> SourceRecord | None:
    return search_record(json.dumps(found(*units)).encode(), SIREN)


def fields_of(**changed: object) -> CompanyFields:
    record = read(unit(**changed))
    assert record is not None
    return record.fields


def test_a_response_is_mapped_to_company_fields() -> None:
    assert fields_of(sigle="DAN", libelle_activite_principale="Sièges sociaux") == CompanyFields(
        siret=SIRET,
        legal_name="DANONE",
        trade_name="DANONE (GERVAIS)",
        brand_name="DAN",
        legal_form="5599",
        creation_date=date(1955, 1, 1),
        active_status="A",
        address_line1="17 BOULEVARD HAUSSMANN",
        postal_code="75009",
        city="PARIS",
        country_code="FR",
        naf_code="70.10Z",
        naf_label="Sièges sociaux",
        headcount_range="42",
    )


@every_case(
    ("changed", "field", "value"),
    [
        ({"nom_raison_sociale": None, "nom_complet": "ODILE MARTEL"}, "legal_name", "ODILE MARTEL"),
        ({"etat_administratif": "C"}, "active_status", "C"),
        ({"siege": None}, "city", None),
        ({"siege": None}, "country_code", None),
        (
            {"siege": seat(numero_voie="17", type_voie="BD", libelle_voie="HAUSSMANN")},
            "address_line1",
            "17 BD HAUSSMANN",
        ),
        ({"siege": seat(adresse="LIEU DIT LE BOURG")}, "address_line1", "LIEU DIT LE BOURG"),
        ({"siege": seat(adresse="75009 PARIS")}, "address_line1", None),
        ({"siege": seat(complement_adresse="BATIMENT B")}, "address_line2", "BATIMENT B"),
        ({"siege": seat(code_postal=1000)}, "postal_code", "01000"),
        ({"siege": seat(libelle_pays_etranger="SUISSE")}, "country_code", "CH"),
        ({"siege": seat(code_postal=None)}, "country_code", "FR"),
        ({"siege": seat(libelle_commune=None)}, "country_code", "FR"),
        (
            {"siege": seat(libelle_commune=None, libelle_commune_etranger="GENEVE")},
            "city",
            "GENEVE",
        ),
        ({"date_creation": "unknown"}, "creation_date", None),
        ({"tranche_effectif_salarie": None}, "headcount_range", None),
    ],
)
def test_variants_of_the_response_are_mapped(
    changed: dict[str, object], field: str, value: object
) -> None:
    assert getattr(fields_of(**changed), field) == value


def test_a_partly_published_company_keeps_its_name_and_commune() -> None:
    hidden = seat(adresse=MASK, libelle_voie=MASK, numero_voie=MASK)
    record = read(unit(statut_diffusion="P", sigle=MASK, siege=hidden))
    assert record is not None
    assert record.is_masked
    kept = record.fields
    assert (kept.legal_name, kept.city, kept.postal_code) == ("DANONE", "PARIS", "75009")
    assert (kept.brand_name, kept.address_line1) == (None, None)


def test_a_masked_sole_trader_is_found() -> None:
    record = read(
        unit(nom_complet=MASK, nom_raison_sociale=None, siege=seat(adresse=MASK, code_postal=MASK))
    )
    assert record is not None
    assert (record.is_masked, record.fields.legal_name, record.fields.city) == (True, None, "PARIS")


def test_volatile_fields_are_not_stored() -> None:
    record = read(unit(siege=seat(date_mise_a_jour_insee="2026-05-01"), date_mise_a_jour_rne=None))
    assert record is not None
    assert not {"score", "date_mise_a_jour", "date_mise_a_jour_rne"} & set(record.document)
    assert record.document["siege"] == seat()
    assert record.document["nom_complet"] == "DANONE (GERVAIS)"


@every_case(
    ("sirens", "is_found"),
    [
        ([], False),
        ([SIREN], True),
        ([OTHER], False),
        ([SIREN, OTHER], True),
        ([OTHER, SIREN], False),
    ],
)
def test_only_the_first_result_is_considered(sirens: list[str], is_found: bool) -> None:
    record = read(*map(unit, sirens))
    assert (record is not None and record.siren == SIREN) is is_found


@every_case(
    ("establishment", "warnings"),
    [
        ({"etat_administratif": "A"}, ()),
        (
            {"etat_administratif": "F", "date_fermeture": "2020-01-31"},
            (f"The establishment {SIREN}00018 is closed since 2020-01-31.",),
        ),
        ({"etat_administratif": "F"}, (f"The establishment {SIREN}00018 is closed.",)),
    ],
)
def test_a_closed_establishment_adds_a_warning(
    establishment: dict[str, str], warnings: tuple[str, ...]
) -> None:
    siret = f"{SIREN}00018"
    company = unit(matching_etablissements=[{"siret": siret, **establishment}])
    record = search_record(json.dumps(found(company)).encode(), SIREN, siret)
    assert record is not None
    assert record.warnings == warnings
    whole = read(company)
    assert whole is not None
    assert whole.warnings == ()


def test_another_matching_establishment_does_not_change_the_fields() -> None:
    assert (
        fields_of(matching_etablissements=[{"siret": f"{SIREN}00018", "adresse": "1 RUE BASSE"}])
        == fields_of()
    )
