"""What INPI's register says: of companies, sole traders and farms alike, however little it is."""

import json
from datetime import date
from typing import Any

import pytest

from automation_pipeline.clients.inpi_payloads import company_of, token_of
from automation_pipeline.clients.registry_payloads import NotUnderstoodError
from automation_pipeline.enrichment.domain.record import CompanyFields, SourceRecord
from automation_pipeline_tests.clients.registers import OTHER, SIREN, SIRET, formality

PERSON = {"entrepreneur": {"descriptionPersonne": {"nom": "MARTEL", "prenoms": ["Odile", "Anne"]}}}


def read(document: Any) -> SourceRecord:
    return company_of(json.dumps(document).encode(), SIREN)


@pytest.mark.parametrize("shape", ["personneMorale", "personnePhysique", "exploitation"])
def test_whoever_it_is_is_told_in_our_words(shape: str) -> None:
    assert read(formality(shape)).said == CompanyFields(
        siret=SIRET,
        legal_name="DANONE",
        trade_name="GERVAIS",
        legal_form="5599",
        creation_date=date(1955, 1, 1),
        active_status="A",
        address_line1="17 BD HAUSSMANN",
        postal_code="75009",
        city="PARIS",
        country_code="FR",
        naf_code="70.10Z",
    )


@pytest.mark.parametrize(
    ("who", "field", "value"),
    [
        ({"identite": PERSON}, "legal_name", "Odile MARTEL"),
        ({"identite": {"entrepreneur": {"descriptionPersonne": {"nom": None, "prenoms": []}}}}, "legal_name", None),
        ({"identite": {"entreprise": {"nicSiege": "00646"}}}, "siret", None),
        ({"detailCessationEntreprise": {"dateRadiation": "2025-01-31"}}, "active_status", "C"),
        ({"identite": {"entreprise": {"dateRad": "2025-01-31T00:00:00+02:00"}}}, "active_status", "C"),
        ({"detailCessationEntreprise": None}, "active_status", "A"),
        ({"adresseEntreprise": {"adresse": {"codePays": "XYZ"}}}, "country_code", None),
        ({"adresseEntreprise": None}, "city", None),
    ],
)
def test_what_is_told_otherwise(who: dict[str, object], field: str, value: object) -> None:
    assert getattr(read(formality(**who)).said, field) == value


@pytest.mark.parametrize("content", [{}, {"personneMorale": {}}, {"personneMorale": None, "natureCreation": None}])
def test_a_company_of_which_next_to_nothing_is_known_is_told_as_that(content: dict[str, object]) -> None:
    record = read({"siren": SIREN, "formality": {"content": content}})
    assert (record.said, record.is_masked) == (CompanyFields(), False)


@pytest.mark.parametrize(
    ("changed", "is_masked"), [({"diffusionCommerciale": False}, True), ({"diffusionCommerciale": None}, False)]
)
def test_who_objects_to_commercial_use_is_told_in_part(changed: dict[str, object], is_masked: bool) -> None:
    document = formality()
    document["formality"] |= changed
    assert read(document).is_masked is is_masked


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"siren": SIREN},
        {"siren": SIREN, "formality": {}},
        {"siren": SIREN, "formality": {"content": []}},
        {"siren": SIREN, "formality": {"content": {"personneMorale": "DANONE"}}},
        formality(siren=OTHER),
        {"formality": {"content": {}}},
    ],
)
def test_another_schema_and_another_company_are_not_understood(document: Any) -> None:
    with pytest.raises(NotUnderstoodError):
        read(document)


def test_the_token_of_a_login_is_read() -> None:
    assert token_of(b'{"token": " a.b.c ", "user": {"id": 1}}') == "a.b.c"


@pytest.mark.parametrize("body", [None, b"{}", b'{"token": null}', b'{"token": " "}', b'{"token": "a\\nb"}'])
def test_a_login_without_a_token_that_can_be_sent_is_not_understood(body: bytes | None) -> None:
    with pytest.raises(NotUnderstoodError):
        token_of(body)
