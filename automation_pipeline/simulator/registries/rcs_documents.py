"""A company as the register of commerce extracts it."""

from collections.abc import Mapping

from automation_pipeline.simulator.registries.companies import Address, Company, Officer, Person
from automation_pipeline.simulator.registries.register import LAST_DAY

Document = Mapping[str, object]
NO_PERSON = {"nom": None, "prenom": None, "adresse": None, "naissance": None, "nationalite": None}


def extract(company: Company) -> Document:
    court = company.head_office.address.city.court
    ceased_on = company.ceased_on and company.ceased_on.isoformat()
    return {
        "data": {
            "siren": company.siren,
            "date_extrait": f"{LAST_DAY:%d/%m/%Y}",
            "date_immatriculation": company.registered_on.isoformat(),
            "date_radiation": ceased_on,
            "nom_commercial": company.trade_name or "",
            "greffe": {"valeur": court.name, "code": court.code},
            "capital": _capital(company),
            "etablissement_principal": _establishment(company),
            "personne_morale": _legal_person(company),
            "personne_physique": _natural_person(company.owner, company.head_office.address)
            if company.owner
            else NO_PERSON,
            "mandataires_sociaux": []
            if company.owner
            else [_mandate(officer) for officer in company.officers],
            "observations": _observations(company),
        },
        "links": {},
        "meta": {},
    }


def _capital(company: Company) -> Document:
    if company.owner:
        return {"montant": None, "devise": None, "code_devise": None}
    return {"montant": float(company.capital), "devise": "EUROS", "code_devise": "EUR"}


def _establishment(company: Company) -> Document:
    return {
        "activite": company.purpose.upper(),
        "origine_fonds": "CREATION",
        "mode_exploitation": "EXPLOITATION DIRECTE",
        "code_ape": company.activity.code.replace(".", ""),
    }


def _legal_person(company: Company) -> Document:
    form = company.legal_form
    return {
        "denomination": None if company.owner else company.name,
        "forme_juridique": {"valeur": form.label.upper(), "code": form.register_code},
        "date_cloture_exercice_comptable": None if company.owner else "31/12",
        "date_fin_de_vie": None if company.owner else f"{company.registered_on.year + 99}-12-31",
    }


def _natural_person(person: Person, address: Address) -> Document:
    year, month = person.born.split("-")
    return {
        "nom": person.last_name,
        "prenom": " ".join(person.first_names),
        "adresse": {
            "nom_postal": "",
            "numero": address.number,
            "type": address.street_type,
            "voie": address.street,
            "ligne_1": address.complement or "",
            "ligne_2": "",
            "localite": "",
            "code_postal": address.city.postal_code,
            "bureau_distributeur": address.city.name,
            "pays": "FRANCE",
        },
        "naissance": {"date": f"{year}-{month}", "lieu": "", "pays": "FRANCE"},
        "nationalite": {"valeur": "FRANCAISE", "code": "FR"},
    }


def _mandate(officer: Officer) -> Document:
    person = officer.person
    if person is None:
        return {
            "type": "personne_morale",
            "fonction": officer.role.register_label,
            "raison_sociale": officer.name,
            "numero_identification": officer.siren,
        }
    return {
        "type": "personne_physique",
        "fonction": officer.role.register_label,
        "nom": person.last_name,
        "prenom": " ".join(person.first_names),
        "date_naissance": person.born,
    }


def _observations(company: Company) -> list[Document]:
    if company.ceased_on is None:
        return []
    label = "CESSATION COMPLETE D'ACTIVITE"
    return [{"numero": "1", "libelle": label, "date": company.ceased_on.isoformat()}]
