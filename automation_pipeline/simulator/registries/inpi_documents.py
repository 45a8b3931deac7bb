"""A company as INPI's register says it: one of three shapes, by who runs it."""

from collections.abc import Mapping

from automation_pipeline.simulator.registries.companies import (
    PEOPLE,
    Address,
    Company,
    Kind,
    Officer,
    Person,
)
from automation_pipeline.simulator.registries.numbers import SIREN_DIGITS
from automation_pipeline.simulator.registries.register import LAST_DAY

Document = Mapping[str, object]
LEGAL_PERSON, NATURAL_PERSON, FARM = "personneMorale", "personnePhysique", "exploitation"
TYPES = {LEGAL_PERSON: "M", NATURAL_PERSON: "P", FARM: "E"}
INCOMPLETE = frozenset({Kind.INCOMPLETE, Kind.NAMELESS})


def company_document(company: Company) -> Document:
    shape = _shape(company)
    is_known = company.kind not in INCOMPLETE
    return {
        "id": f"{int(company.siren):024x}",
        "updatedAt": f"{LAST_DAY}T03:12:45+02:00",
        "siren": company.siren,
        "nombreRepresentantsActifs": len(company.officers) if is_known else 0,
        "nombreEtablissementsOuverts": sum(one.closed_on is None for one in company.establishments),
        "formality": {
            "siren": company.siren,
            "typePersonne": TYPES[shape],
            "diffusionCommerciale": not company.is_hidden,
            "diffusionINSEE": "P" if company.is_hidden else "O",
            "formeJuridique": company.legal_form.code if is_known else None,
            "content": {**_creation(company), shape: _content(company, shape)}
            if is_known
            else {shape: {}},
        },
    }


def _shape(company: Company) -> str:
    if company.kind is Kind.FARM:
        return FARM
    return NATURAL_PERSON if company.kind in PEOPLE else LEGAL_PERSON


def _creation(company: Company) -> Document:
    return {
        "natureCreation": {
            "dateCreation": company.created_on.isoformat(),
            "societeEtrangere": False,
            "formeJuridique": company.legal_form.code,
            "microEntreprise": company.kind in PEOPLE,
            "etablieEnFrance": True,
            "salarieEnFrance": company.headcount != "NN",
        }
    }


def _content(company: Company, shape: str) -> Document:
    identity: dict[str, object] = {"entreprise": _entreprise(company)}
    more: dict[str, object] = {}
    if company.owner:
        identity["entrepreneur"] = {"descriptionPersonne": _person(company.owner, company)}
    else:
        identity["description"] = _description(company)
        more["composition"] = {
            "pouvoirs": [_power(officer, company) for officer in company.officers]
        }
    ceased_on = company.ceased_on and company.ceased_on.isoformat()
    return {
        "identite": identity,
        "adresseEntreprise": {
            "caracteristiques": {},
            "adresse": _address(company.head_office.address, company),
        },
        **more,
        "etablissementPrincipal": {
            "descriptionEtablissement": {
                "siret": company.head_office.siret,
                "codeApe": _naf(company),
                "enseigne": company.head_office.sign,
                "nomCommercial": company.trade_name,
                "rolePourEntreprise": "2" if shape == LEGAL_PERSON else "3",
            },
            "adresse": _address(company.head_office.address, company),
        },
        "detailCessationEntreprise": {
            "dateRadiation": ceased_on,
            "dateCessationTotaleActivite": ceased_on,
        },
        "observations": {"rcs": []},
    }


def _entreprise(company: Company) -> Document:
    return {
        "siren": company.siren,
        "denomination": None if company.owner else company.name,
        "nomCommercial": company.trade_name,
        "sigle": company.acronym,
        "formeJuridique": company.legal_form.code,
        "codeApe": _naf(company),
        "nicSiege": company.head_office.siret[SIREN_DIGITS:],
        "dateImmat": f"{company.registered_on}T00:00:00+02:00",
        "dateRad": company.ceased_on and f"{company.ceased_on}T00:00:00+02:00",
    }


def _description(company: Company) -> Document:
    return {
        "objet": company.purpose,
        "duree": 99,
        "montantCapital": company.capital,
        "deviseCapital": "EUR",
        "dateClotureExerciceSocial": "3112",
    }


def _address(address: Address, company: Company) -> Document:
    """Of a hidden one the city stays."""
    hidden, city = company.is_hidden, address.city
    return {
        "pays": "FRANCE",
        "codePays": "FRA",
        "codePostal": city.postal_code,
        "commune": city.name,
        "codeInseeCommune": city.commune,
        "numVoie": None if hidden else address.number,
        "typeVoie": None if hidden else address.street_type,
        "voie": None if hidden else address.street,
        "complementLocalisation": None if hidden else address.complement,
    }


def _power(officer: Officer, company: Company) -> Document:
    if officer.person:
        return {
            "roleEntreprise": officer.role.inpi_code,
            "typeDePersonne": "INDIVIDU",
            "individu": {"descriptionPersonne": _person(officer.person, company)},
        }
    return {
        "roleEntreprise": officer.role.inpi_code,
        "typeDePersonne": "ENTREPRISE",
        "entreprise": {"siren": officer.siren, "denomination": officer.name},
    }


def _person(person: Person, company: Company) -> Document:
    if company.kind is Kind.MASKED:
        return {"nom": None, "prenoms": [], "dateDeNaissance": None}
    return {
        "nom": person.last_name,
        "prenoms": list(person.first_names),
        "dateDeNaissance": person.born,
    }


def _naf(company: Company) -> str:
    return company.activity.code.replace(".", "")
