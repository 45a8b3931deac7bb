"""A company as Recherche d'entreprises says it."""

from collections.abc import Mapping

from automation_pipeline.simulator.registries.companies import (
    PEOPLE,
    Address,
    Company,
    Establishment,
    Kind,
    Officer,
)
from automation_pipeline.simulator.registries.numbers import vat_number
from automation_pipeline.simulator.registries.register import LAST_DAY

INCLUDED = (
    "siege",
    "complements",
    "dirigeants",
    "finances",
    "matching_etablissements",
    "score",
    "tva",
)
MASK = "[NON-DIFFUSIBLE]"
Document = Mapping[str, object]


def result(company: Company, siret: str | None, parts: frozenset[str]) -> Document:
    """With the establishment of that SIRET, where one was asked for, among
    `matching_etablissements`."""
    matching = company.establishment(siret) if siret else None
    more: dict[str, object] = {
        "siege": _head_office(company),
        "dirigeants": [_officer(company, officer) for officer in company.officers],
        "finances": _finances(company),
        "complements": _complements(company),
        "matching_etablissements": [_establishment(company, matching)] if matching else [],
        "score": 1.0,
        "tva": vat_number(company.siren),
    }
    return {**_unit(company), **{name: more[name] for name in INCLUDED if name in parts}}


def _unit(company: Company) -> Document:
    code = company.activity.code
    return {
        "siren": company.siren,
        "nom_complet": _full_name(company),
        "nom_raison_sociale": None if company.kind in PEOPLE else company.name,
        "sigle": _shown(company, company.acronym),
        "nombre_etablissements": len(company.establishments),
        "nombre_etablissements_ouverts": sum(
            one.closed_on is None for one in company.establishments
        ),
        "activite_principale": code,
        "activite_principale_naf25": f"{code[:-1]}Y",
        "section_activite_principale": company.activity.section,
        "categorie_entreprise": company.size,
        "annee_categorie_entreprise": "2023" if company.size else None,
        "caractere_employeur": "N" if company.headcount == "NN" else "O",
        "date_creation": company.created_on.isoformat(),
        "date_fermeture": company.ceased_on and company.ceased_on.isoformat(),
        "date_mise_a_jour": f"{LAST_DAY}T05:21:08",
        "date_mise_a_jour_insee": f"{LAST_DAY}T05:21:08",
        "date_mise_a_jour_rne": None,
        "etat_administratif": "C" if company.ceased_on else "A",
        "nature_juridique": company.legal_form.code,
        "tranche_effectif_salarie": company.headcount,
        "annee_tranche_effectif_salarie": None if company.headcount == "NN" else "2023",
        "statut_diffusion": "P" if company.is_hidden else "O",
    }


def _full_name(company: Company) -> str | None:
    if company.kind is Kind.MASKED:
        return MASK
    name, acronym = company.name, None if company.is_hidden else company.acronym
    added = [one for one in (company.trade_name, acronym) if one]
    return f"{name} ({', '.join(added)})" if name and added else name


def _head_office(company: Company) -> Document:
    if company.kind is Kind.NAMELESS:
        return dict.fromkeys(_establishment(company, company.head_office))
    return _establishment(company, company.head_office)


def _establishment(company: Company, one: Establishment) -> Document:
    return {
        "siret": one.siret,
        "est_siege": one is company.head_office,
        "activite_principale": company.activity.code,
        "etat_administratif": "F" if one.closed_on else "A",
        "date_creation": one.opened_on.isoformat(),
        "date_debut_activite": one.opened_on.isoformat(),
        "date_fermeture": one.closed_on and one.closed_on.isoformat(),
        "tranche_effectif_salarie": company.headcount,
        "liste_enseignes": [one.sign] if one.sign else None,
        "nom_commercial": _shown(company, company.trade_name)
        if one is company.head_office
        else None,
        "statut_diffusion_etablissement": "P" if company.is_hidden else "O",
        **_address(
            one.address, is_hidden=company.is_hidden, keeps_code=company.kind is not Kind.MASKED
        ),
    }


def _address(address: Address, *, is_hidden: bool, keeps_code: bool) -> Document:
    """Of a hidden one the commune stays."""
    city = address.city
    line = " ".join(
        part for part in (address.complement, address.line, city.postal_code, city.name) if part
    )
    return {
        "adresse": MASK if is_hidden else line,
        "complement_adresse": MASK if is_hidden else address.complement,
        "numero_voie": MASK if is_hidden else address.number,
        "indice_repetition": None,
        "type_voie": MASK if is_hidden else address.street_type,
        "libelle_voie": MASK if is_hidden else address.street,
        "distribution_speciale": None,
        "cedex": None,
        "libelle_cedex": None,
        "code_postal": city.postal_code if keeps_code else MASK,
        "commune": city.commune,
        "libelle_commune": city.name,
        "departement": city.department,
        "region": city.region,
        "code_pays_etranger": None,
        "libelle_pays_etranger": None,
        "libelle_commune_etranger": None,
        "latitude": MASK if is_hidden else None,
        "longitude": MASK if is_hidden else None,
    }


def _officer(company: Company, officer: Officer) -> Document:
    person = officer.person
    if person is None:
        return {
            "siren": officer.siren,
            "denomination": officer.name,
            "qualite": officer.role.label,
            "type_dirigeant": "personne morale",
        }
    hidden = company.kind is Kind.MASKED
    return {
        "nom": MASK if hidden else person.last_name,
        "prenoms": MASK if hidden else " ".join(person.first_names),
        "annee_de_naissance": MASK if hidden else person.born[:4],
        "date_de_naissance": MASK if hidden else person.born,
        "qualite": None if company.kind in PEOPLE else officer.role.label,
        "nationalite": None,
        "type_dirigeant": "personne physique",
    }


def _finances(company: Company) -> Document | None:
    if company.size is None:
        return None
    return {"2024": {"ca": company.capital * 870, "resultat_net": company.capital * 31}}


def _complements(company: Company) -> Document:
    return {
        "est_association": company.kind is Kind.ASSOCIATION,
        "est_entrepreneur_individuel": company.kind in PEOPLE,
        "est_service_public": company.kind is Kind.PUBLIC,
        "est_bio": False,
        "est_ess": company.kind is Kind.ASSOCIATION,
        "est_societe_mission": False,
        "identifiant_association": f"W{company.siren}"
        if company.kind is Kind.ASSOCIATION
        else None,
    }


def _shown(company: Company, text: str | None) -> str | None:
    return MASK if text and company.is_hidden else text
