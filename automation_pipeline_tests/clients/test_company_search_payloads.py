"""Whether the company that was asked for was found, and what the Recherche d'entreprises says of
it."""

import json
from datetime import date
from typing import Any

from automation_pipeline.clients.registries.company_search import company_of
from automation_pipeline.enrichment.models import CompanyFields, SourceRecord
from automation_pipeline_tests.clients.registers import OTHER, SIREN, SIRET, found, seat, unit
from automation_pipeline_tests.tables import every_case

MASK = "[NON-DIFFUSIBLE]"


def read(*units: Any) -> SourceRecord | None:
    return company_of(json.dumps(found(*units)).encode(), SIREN)


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
        (
            {"siege": seat(libelle_commune=None, libelle_commune_etranger="GENEVE")},
            "city",
            "GENEVE",
        ),
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
    record = read(
        unit(nom_complet=MASK, nom_raison_sociale=None, siege=seat(adresse=MASK, code_postal=MASK))
    )
    assert record is not None
    assert (record.is_masked, record.said.legal_name, record.said.city) == (True, None, "PARIS")


def test_what_changes_by_itself_is_not_kept() -> None:
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
def test_only_the_first_that_was_found_is_the_one(sirens: list[str], is_found: bool) -> None:
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
def test_an_establishment_that_is_closed_is_a_warning(
    establishment: dict[str, str], warnings: tuple[str, ...]
) -> None:
    siret = f"{SIREN}00018"
    company = unit(matching_etablissements=[{"siret": siret, **establishment}])
    record = company_of(json.dumps(found(company)).encode(), SIREN, siret)
    assert record is not None
    assert record.warnings == warnings
    whole = read(company)
    assert whole is not None
    assert whole.warnings == ()


def test_an_establishment_that_was_found_beside_the_head_office_changes_nothing() -> None:
    assert (
        said(matching_etablissements=[{"siret": f"{SIREN}00018", "adresse": "1 RUE BASSE"}])
        == said()
    )
