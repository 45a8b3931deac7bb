"""What the extract of the register of commerce says, and what its errors tell."""

import json
from datetime import date
from typing import Any

import pytest

from automation_pipeline.clients.registries.api_entreprise import company_of, errors_of
from automation_pipeline.clients.registries.calls import RegistryFormatError
from automation_pipeline.enrichment.models import CompanyFields, SourceRecord
from automation_pipeline_tests.clients.registers import OTHER, SIREN, complaint, extract
from automation_pipeline_tests.tables import every_case


def read(document: Any) -> SourceRecord:
    return company_of(json.dumps(document).encode(), SIREN)


def test_a_company_is_told_in_our_words() -> None:
    assert read(extract()).said == CompanyFields(
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
def test_what_is_told_otherwise(changed: dict[str, object], field: str, value: object) -> None:
    assert getattr(read(extract(**changed)).said, field) == value


def test_the_day_of_the_extract_is_not_kept_for_it_changes_by_itself() -> None:
    assert read(extract()).document == read(extract(date_extrait="05/05/2026")).document


@every_case("document", [{}, {"data": None}, {"data": {}}, extract(OTHER), extract(greffe="PARIS")])
def test_another_schema_and_another_company_are_not_understood(document: Any) -> None:
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
def test_errors_tell_their_codes_and_how_long_to_wait(
    document: Any, codes: tuple[str, ...], wait: float | None
) -> None:
    assert errors_of(json.dumps(document).encode()) == (codes, wait)


def test_errors_that_cannot_be_read_tell_nothing() -> None:
    assert errors_of(None) == errors_of(b"<html>") == ((), None)
