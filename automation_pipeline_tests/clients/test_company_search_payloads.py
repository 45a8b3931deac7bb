"""Which of the companies that were found is the one, and what the Recherche d'entreprises says of it."""

import json
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.clients.company_search_payloads import Company, company_of, place_of
from automation_pipeline.enrichment.domain.record import CompanyFields, SourceRecord
from automation_pipeline_tests.clients.registers import OTHER, SIREN, SIRET, found, seat, unit

MASK = "[NON-DIFFUSIBLE]"
ELSEWHERE = f"{SIREN}00018"


def read(*units: Any, siret: str | None = None) -> SourceRecord | None:
    return company_of(json.dumps(found(*units)).encode(), SIREN, siret)


def said(**changed: object) -> CompanyFields:
    record = read(unit(**changed))
    assert record is not None
    return record.said


def test_a_company_is_told_in_our_words() -> None:
    assert said(sigle="DAN", libelle_activite_principale="Sièges sociaux") == CompanyFields(
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


@pytest.mark.parametrize(
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
        ({"siege": seat(libelle_pays_etranger="SUISSE")}, "country_code", None),
        ({"siege": seat(libelle_commune=None, libelle_commune_etranger="GENEVE")}, "city", "GENEVE"),
        ({"date_creation": "nobody knows"}, "creation_date", None),
        ({"tranche_effectif_salarie": None}, "headcount_range", None),
    ],
)
def test_what_is_told_otherwise(changed: dict[str, object], field: str, value: object) -> None:
    assert getattr(said(**changed), field) == value


def test_a_company_that_is_told_in_part_keeps_its_name_and_commune() -> None:
    hidden = seat(adresse=MASK, libelle_voie=MASK, numero_voie=MASK)
    record = read(unit(statut_diffusion="P", sigle=MASK, siege=hidden))
    assert record is not None
    assert record.is_masked
    kept = record.said
    assert (kept.legal_name, kept.city, kept.postal_code) == ("DANONE", "PARIS", "75009")
    assert (kept.brand_name, kept.address_line1) == (None, None)


def test_a_sole_trader_who_is_masked_is_found_all_the_same() -> None:
    record = read(unit(nom_complet=MASK, nom_raison_sociale=None, siege=seat(adresse=MASK, code_postal=MASK)))
    assert record is not None
    assert (record.is_masked, record.said.legal_name, record.said.city) == (True, None, "PARIS")


def test_what_changes_by_itself_is_not_kept() -> None:
    record = read(unit(siege=seat(date_mise_a_jour_insee="2026-05-01"), date_mise_a_jour_rne=None))
    assert record is not None
    assert not {"score", "date_mise_a_jour", "date_mise_a_jour_rne"} & set(record.document)
    assert record.document["siege"] == seat()
    assert record.document["nom_complet"] == "DANONE (GERVAIS)"


AS_SEAT = unit(siege=seat(siret=ELSEWHERE))
AS_OTHER = unit(matching_etablissements=[{"siret": ELSEWHERE}])
STRANGER = unit(OTHER, siege=seat(siret=f"{OTHER}00074"))


@pytest.mark.parametrize(
    ("units", "siret", "place"),
    [
        ([], None, None),
        ([], ELSEWHERE, None),
        ([unit()], None, 0),
        ([STRANGER], None, None),
        ([STRANGER, unit()], None, None),  # of a SIREN, the first must be it
        ([unit(), AS_OTHER, AS_SEAT], ELSEWHERE, 2),
        ([unit(), AS_OTHER], ELSEWHERE, 1),
        ([STRANGER, unit(siege=None), unit()], ELSEWHERE, 1),
        ([STRANGER], ELSEWHERE, None),
        ([unit(OTHER, siege=seat(siret=ELSEWHERE))], ELSEWHERE, None),
    ],
)
def test_which_of_them_is_the_one(units: list[Any], siret: str | None, place: int | None) -> None:
    assert place_of([Company.model_validate(one) for one in units], SIREN, siret) == place
    record = read(*units, siret=siret)
    assert (record is None) is (place is None)


@given(st.lists(st.sampled_from([unit(), AS_SEAT, AS_OTHER, STRANGER, unit(OTHER)]), max_size=5), st.booleans())
def test_nobody_else_is_ever_chosen(units: list[Any], by_siret: bool) -> None:
    place = place_of([Company.model_validate(one) for one in units], SIREN, ELSEWHERE if by_siret else None)
    assert place is None or units[place]["siren"] == SIREN
    if by_siret:
        assert (place is None) is all(one["siren"] != SIREN for one in units)
