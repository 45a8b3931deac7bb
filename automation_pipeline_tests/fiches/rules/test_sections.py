"""The fields of the CRM's details: their types, whether they may be null or missing, and unknown fields.

The table is a copy of the CRM's documentation. s: text, n: number, b: boolean, x: any other type, ?: nullable.
"""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from automation_pipeline.fiches.models import sections
from automation_pipeline.fiches.models.sections import LARGEST, LONGEST_KEY, Information, Section
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.fakes.crm import INFORMATION

TABLE = {
    "Information": """fiche_id s, cle s?, date_insertion s, createur s?, fiches_associees s?, nombre_acces n,
        dernier_acces s, groupe s, groupe_responsable s?, groupe_gestion s?, groupe_reclamation s?, agence_id s,
        agence_nom s, attribution_user_id s, attribution_user_nom s, provenance_id s, provenance_nom s,
        provenance_numero s?, provenance_periode_rappel s?, origine_id s?, origine_nom s?, attribution_bis_user_id s?,
        attribution_bis_user_nom s?, refus_demarchage b, exception_demarchage b, exception_demarchage_commentaire s?,
        niveau_interet n?, nombre_ouverture_mails n, derniere_ouverture_mail s?, nombre_visualisation_pages n,
        derniere_visualisation_page s?, espace_prospect_url s?, ferme_espace_prospect b, desinscription_mail b,
        corbeille b, archive b, modules x, etiquettes x""",
    "Etiquette": "nom s, date s, style s",
    "Prospect": """prospect_id s, civilite n, civilite_text s, nom s, prenom s, date_naissance s, regime s,
        regime_text s, telephone s?, mobile s?, telephone_2 s?, mail s?, mail_2 s?, adresse s?, code_postal s?,
        ville s?, num_secu s?, num_affiliation s?, situation_familiale n?, situation_familiale_text s?, madelin b,
        profession s?, csp n?, csp_text s?, fax s?""",
    "Conjoint": """conjoint_id s, civilite n, civilite_text s, nom s, prenom s, date_naissance s, regime s?,
        regime_text s?, telephone s?, mobile s?, mail s?, profession s?, csp n?, csp_text s?""",
    "Enfant": """enfant_id s, civilite n, civilite_text s, nom s, prenom s, date_naissance s, regime s?,
        regime_text s?""",
    "Mail": "date_envoi s, type_mail s, utilisateur s, visualisation_url s?",
    "RendezVous": """rdv_id s, etiquette s?, etiquette_color s?, utilisateur s, date_debut s, date_fin s?,
        commentaire s?, statut s?""",
    "Commentaire": "commentaire_id s, date s, utilisateur s, texte s",
    "ElementsSouscription": """souscription_id s?, date_souscription s?, date_signature s?, date_validation s?,
        num_contrat s?, annulation_contrat b, type_vente s?, vente_a_froid s?, vf_accept s?, ancien_contrat x?,
        produit x?, paiement x?, questions_complementaires x, questions_conseil x, raw_data x""",
    "AncienContrat": """deja_assure b, plus_12_mois b, ria_requested b, assureur s?, code_assureur s?, adresse s?,
        code_postal s?, ville s?, date_souscription s?, date_echeance s?, num_contrat s?, formule s?, cotisation s?""",
    "Produit": """date_effet s?, date_effet_modifiable s?, formule s?, groupe_nom s?, gamme_nom s?, formule_nom s?,
        cotisation s?, type_contrat s?, type_client s?, logo_url s?, garanties_url s?, dipa_url s?,
        conditions_generales_url s?, bulletin_adhesion_url s?, devoir_conseil_url s?""",
    "Paiement": """mode_paiement s?, prelevement_le s?, periodicite s?, pas_coord_bancaires b, compte_prelevement x?,
        compte_virement x?""",
    "Compte": """account_id s?, titulaire_nom s?, titulaire_prenom s?, titulaire_adresse s?, titulaire_cp s?,
        titulaire_ville s?""",
    "Tarification": "nom s, gammes x",
    "Gamme": """nom s, logo_url s?, garanties_url s?, conditions_generales_url s?, bulletin_adhesion_url s?,
        formules x""",
    "Formule": "formule_id s, nom s, prix s, details x",
    "Reclamation": """reclamation_id s, date_creation s, assureur s?, type_reclamation s?, description s?, statut s?,
        date_traitement s?, utilisateur_creation s?, utilisateur_traitement s?""",
    "AutreContrat": """contrat_id s, type_contrat s, assureur s?, numero_contrat s?, date_souscription s?, montant s?,
        commentaire s?""",
    "Document": """document_id s, type s, nom s, taille s, date_creation s, selection_mail b, partage_prospect b,
        signer b, download_url s?""",
    "Alerte": """alerte_id s, etat s, date s, etiquette s?, libelle s, deposee_le s, deposee_par s, commentaire s?,
        attribuee_a s?, traitee_le s?, traitee_par s?, commentaire_traitement s?""",
}
MAPS = {"questions_complementaires", "questions_conseil", "raw_data", "details"}
LISTS = {"modules", "etiquettes", "gammes", "formules"}
VALID = {"s": "é", "n": 3, "b": True}
INVALID: dict[str, list[object]] = {
    "s": [7, True, ["é"], {}],
    "n": ["3", True, [3], LARGEST + 1, -LARGEST - 1, 1e300, float("nan"), float("inf")],
    "b": ["true", 1, 0, "oui"],
    "x": ["é", 7, True],
}


def field_types(name: str) -> dict[str, str]:
    return dict(entry.split() for entry in TABLE[name].split(","))


def valid(name: str) -> dict[str, Any]:
    return {
        field: {} if field in MAPS else [] if field in LISTS else VALID.get(kind[0])
        for field, kind in field_types(name).items()
    }


def parse(name: str, document: object) -> Section:
    return getattr(sections, name).model_validate_json(json.dumps(document))


def fields() -> list[tuple[str, str, str]]:
    return [(name, field, kind) for name in TABLE for field, kind in field_types(name).items()]


def test_the_models_match_the_documented_table() -> None:
    models = {
        name
        for name, one in vars(sections).items()
        if isinstance(one, type) and issubclass(one, Section) and one is not Section
    }
    assert models == set(TABLE)
    assert {name: list(getattr(sections, name).model_fields) for name in models} == {
        n: list(field_types(n)) for n in TABLE
    }


@every_case("name", TABLE)
def test_a_valid_section_is_parsed_unchanged(name: str) -> None:
    assert parse(name, valid(name)).model_dump(mode="json") == valid(name)


@every_case(("name", "field", "kind"), fields())
def test_a_missing_or_mistyped_field_is_rejected(name: str, field: str, kind: str) -> None:
    incomplete = {key: value for key, value in valid(name).items() if key != field}
    wrong = [valid(name) | {field: value} for value in INVALID[kind[0]]]
    for document in [
        incomplete,
        *wrong,
        *([] if kind.endswith("?") else [valid(name) | {field: None}]),
    ]:
        with pytest.raises(ValidationError) as caught:
            parse(name, document)
        assert {error["loc"][0] for error in caught.value.errors()} == {field}


@every_case(
    ("name", "field"), [(name, field) for name, field, kind in fields() if kind.endswith("?")]
)
def test_a_nullable_field_accepts_null(name: str, field: str) -> None:
    assert getattr(parse(name, valid(name) | {field: None}), field) is None


@every_case(("sent", "stored"), [(3.0, 3), (2.6, 3), (-1.4, -1), (LARGEST, LARGEST), (0, 0)])
def test_a_number_is_rounded_to_an_integer(sent: float, stored: int) -> None:
    section = parse("Prospect", valid("Prospect") | {"csp": sent})
    assert section.model_dump()["csp"] == stored


@every_case("field", ["groupe", "attribution_user_id"])
def test_an_indexed_field_longer_than_its_index_is_rejected(field: str) -> None:
    longest = "é" * LONGEST_KEY
    assert getattr(parse("Information", valid("Information") | {field: longest}), field) == longest
    with pytest.raises(ValidationError):
        parse("Information", valid("Information") | {field: longest + "é"})


@every_case("name", TABLE)
def test_an_unknown_field_is_kept_in_the_rest_of_its_section(name: str) -> None:
    section = parse(name, valid(name) | {"nouveau": {"a": [1, float("nan")]}})
    assert section.rest() == {"nouveau": {"a": [1, None]}}


def test_unknown_fields_of_inner_sections_are_found_by_their_position() -> None:
    formule = valid("Formule") | {"remise": "5 %"}
    gammes = [valid("Gamme"), valid("Gamme") | {"formules": [formule, formule]}]
    rest = parse("Tarification", valid("Tarification") | {"gammes": gammes, "rang": 1}).rest()
    assert rest == {
        "rang": 1,
        "gammes": {"1": {"formules": {"0": {"remise": "5 %"}, "1": {"remise": "5 %"}}}},
    }


def test_maps_replace_values_that_json_cannot_represent_with_null() -> None:
    values = {"a": [1, {"b": None}], "c": float("inf"), "d": True}
    section = parse("ElementsSouscription", valid("ElementsSouscription") | {"raw_data": values})
    assert section.model_dump()["raw_data"] == {"a": [1, {"b": None}], "c": None, "d": True}


def test_a_section_is_immutable() -> None:
    with pytest.raises(ValidationError):
        INFORMATION.groupe = "TEAM R2"  # type: ignore[misc]  the test checks that this fails


def test_an_array_element_of_another_type_is_rejected() -> None:
    document = valid("Information") | {"modules": ["Santé", None]}
    with pytest.raises(ValidationError):
        Information.model_validate_json(json.dumps(document))
