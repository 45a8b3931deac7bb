"""What INPI's register says: of companies, sole traders and farms alike, however little it is."""

import json
from datetime import date
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from automation_pipeline.clients.registries.calls import RegistryFormatError
from automation_pipeline.clients.registries.inpi import company_of, token_of
from automation_pipeline.enrichment.models import CompanyFields, SourceError, SourceRecord
from automation_pipeline_tests.clients.registers import (
    OTHER,
    SIREN,
    SIRET,
    fetch,
    formality,
    inpi,
    logged_in,
)
from automation_pipeline_tests.tables import every_case

PERSON = {"entrepreneur": {"descriptionPersonne": {"nom": "MARTEL", "prenoms": ["Odile", "Anne"]}}}


def read(document: Any) -> SourceRecord:
    return company_of(json.dumps(document).encode(), SIREN)


@every_case("shape", ["personneMorale", "personnePhysique", "exploitation"])
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


@every_case(
    ("who", "field", "value"),
    [
        ({"identite": PERSON}, "legal_name", "Odile MARTEL"),
        (
            {"identite": {"entrepreneur": {"descriptionPersonne": {"nom": None, "prenoms": []}}}},
            "legal_name",
            None,
        ),
        ({"identite": {"entreprise": {"nicSiege": "00646"}}}, "siret", None),
        ({"detailCessationEntreprise": {"dateRadiation": "2025-01-31"}}, "active_status", "C"),
        (
            {"identite": {"entreprise": {"dateRad": "2025-01-31T00:00:00+02:00"}}},
            "active_status",
            "C",
        ),
        ({"detailCessationEntreprise": None}, "active_status", "A"),
        ({"adresseEntreprise": {"adresse": {"codePays": "XYZ"}}}, "country_code", None),
        ({"adresseEntreprise": {"adresse": {"codePays": "POL"}}}, "country_code", "PL"),
        (
            {"adresseEntreprise": {"adresse": {"codePays": "BEL", "codePostal": "1000"}}},
            "postal_code",
            "1000",
        ),
        (
            {"adresseEntreprise": {"adresse": {"codePays": "FRA", "codePostal": 1000}}},
            "postal_code",
            "01000",
        ),
        ({"adresseEntreprise": []}, "city", None),
        ({"adresseEntreprise": {"adresse": []}}, "legal_name", "DANONE"),
        ({"identite": []}, "legal_name", None),
        (
            {"identite": {"entreprise": [], "entrepreneur": PERSON["entrepreneur"]}},
            "legal_name",
            "Odile MARTEL",
        ),
        ({"detailCessationEntreprise": []}, "active_status", "A"),
        ({"adresseEntreprise": None}, "city", None),
    ],
)
def test_what_is_told_otherwise(who: dict[str, object], field: str, value: object) -> None:
    assert getattr(read(formality(**who)).said, field) == value


def described(name: str) -> dict[str, object]:
    return {"identite": {"entreprise": {"denomination": name}}}


COMPANY, TRADER, FARM = described("COMPANY"), described("TRADER"), described("FARM")
SOMEWHERE = {"adresseEntreprise": {"adresse": {"commune": "PARIS"}}}


@every_case(
    ("kind", "content", "name"),
    [
        ("P", {"personneMorale": COMPANY, "personnePhysique": TRADER}, "TRADER"),
        (
            "E",
            {"personneMorale": COMPANY, "personnePhysique": TRADER, "exploitation": FARM},
            "FARM",
        ),
        ("M", {"personnePhysique": TRADER, "personneMorale": COMPANY}, "COMPANY"),
        ("P", {"personneMorale": {}, "personnePhysique": TRADER}, "TRADER"),
        ("P", {"personneMorale": [], "personnePhysique": TRADER}, "TRADER"),
        (None, {"personneMorale": {}, "personnePhysique": TRADER}, "TRADER"),
        (None, {"personneMorale": SOMEWHERE, "personnePhysique": TRADER}, "TRADER"),
        ("M", {"personneMorale": {}, "exploitation": FARM}, "FARM"),
        ("?", {"personneMorale": COMPANY, "personnePhysique": TRADER}, "COMPANY"),
    ],
)
def test_of_several_the_one_that_is_named_is_told(
    kind: str | None, content: dict[str, object], name: str
) -> None:
    document = {"siren": SIREN, "formality": {"typePersonne": kind, "content": content}}
    assert read(document).said.legal_name == name


def test_where_nobody_is_told_by_name_the_one_that_is_named_keeps_its_address() -> None:
    content = {"personneMorale": {}, "personnePhysique": SOMEWHERE}
    assert (
        read({"siren": SIREN, "formality": {"typePersonne": "P", "content": content}}).said.city
        == "PARIS"
    )


@every_case(
    "content",
    [
        {},
        {"personneMorale": {}},
        {"personneMorale": [], "natureCreation": []},
        {"personneMorale": None, "natureCreation": None},
    ],
)
def test_a_company_of_which_next_to_nothing_is_known_is_told_as_that(
    content: dict[str, object],
) -> None:
    record = read({"siren": SIREN, "formality": {"content": content}})
    assert (record.said, record.is_masked) == (CompanyFields(), False)


@every_case(
    ("changed", "is_masked"),
    [({"diffusionCommerciale": False}, True), ({"diffusionCommerciale": None}, False)],
)
def test_who_objects_to_commercial_use_is_told_in_part(
    changed: dict[str, object], is_masked: bool
) -> None:
    document = formality()
    document["formality"] |= changed
    assert read(document).is_masked is is_masked


@every_case(
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
    with pytest.raises(RegistryFormatError):
        read(document)


def places_in(document: Any) -> list[tuple[str, ...]]:
    inner = document.items() if isinstance(document, dict) else ()
    return [(), *((name, *rest) for name, each in inner for rest in places_in(each))]


def with_instead(document: Any, place: tuple[str, ...], value: object) -> Any:
    return (
        document | {place[0]: with_instead(document[place[0]], place[1:], value)}
        if place
        else value
    )


PLACES = places_in(formality())
FLAT = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
JSON = st.recursive(
    FLAT,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(PLACES), JSON)
def test_whatever_json_inpi_answers_is_a_record_or_an_error(
    place: tuple[str, ...], value: object
) -> None:
    body = json.dumps(with_instead(formality(), place, value)).encode()
    said = fetch(inpi(logged_in(lambda _: httpx.Response(200, content=body))))
    assert isinstance(said, SourceRecord | SourceError)


def test_the_token_of_a_login_is_read() -> None:
    assert token_of(b'{"token": " a.b.c ", "user": {"id": 1}}') == "a.b.c"


@every_case("body", [None, b"{}", b'{"token": null}', b'{"token": " "}', b'{"token": "a\\nb"}'])
def test_a_login_without_a_token_that_can_be_sent_is_not_understood(body: bytes | None) -> None:
    with pytest.raises(RegistryFormatError):
        token_of(body)
