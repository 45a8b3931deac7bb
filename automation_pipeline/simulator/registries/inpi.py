"""INPI's national register (RNE): a login that gives a token, and companies by SIREN."""

import json
from collections.abc import Mapping
from typing import cast

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from automation_pipeline.simulator.endpoint import Endpoint
from automation_pipeline.simulator.registries.companies import (
    LAST_DAY,
    NOT_AT_INPI,
    PEOPLE,
    SIREN_DIGITS,
    Address,
    Company,
    Kind,
    Officer,
    Person,
    is_digits,
)
from automation_pipeline.simulator.registries.search import client_of
from automation_pipeline.simulator.registries.state import LoginResult, RegistriesState

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
    """The fields of an address. A hidden address shows only its city."""
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


LOGIN, COMPANY = "registries.inpi.login", "registries.inpi.company"
MESSAGES = {
    400: "La requête n'est pas correcte.",
    401: "Le compte ou le jeton n'est pas reconnu.",
    403: "Le compte est bloqué.",
    404: "Aucune entreprise ne porte ce numéro.",
    429: "Trop d'appels.",
}


def endpoints(state: RegistriesState) -> list[Endpoint]:
    provider = _Provider(state)
    return [
        Endpoint(
            name=LOGIN,
            path="/registries/inpi/api/sso/login",
            methods=("POST",),
            handler=provider.login,
            item=lambda _: "login",
            refuse=provider.refuse,
            read_body=_read_body,
            error=_error,
            error_key="message",
        ),
        Endpoint(
            name=COMPANY,
            path="/registries/inpi/api/companies/{siren}",
            handler=provider.company,
            item=lambda request: request.path_params["siren"],
            refuse=provider.refuse_company,
            error=_error,
            error_key="message",
        ),
    ]


class _Provider:
    def __init__(self, state: RegistriesState) -> None:
        self._state = state

    def refuse(self, request: Request) -> Response | None:
        """Refuse banned clients, and ban clients that exceed the rate limit."""
        client, bans = client_of(request), self._state.inpi_bans
        if bans.is_banned(client):
            return _refused(429)
        if self._state.inpi.take(client):
            bans.ban(client)
            return _refused(429)
        return None

    def refuse_company(self, request: Request) -> Response | None:
        if refused := self.refuse(request):
            return refused
        if not self._state.account.accepts(bearer(request)):
            return _refused(401)
        return _refused(429) if self._state.inpi_quota.take() else None

    async def login(self, request: Request) -> Response:
        pair = cast("tuple[str, str] | None", request.state.pair)
        client, account = client_of(request), self._state.account
        if pair is None:
            return _refused(400)
        if account.is_blocked:
            return _refused(403)
        if self._state.inpi_logins.take(client):
            self._state.inpi_bans.ban(client)
            return _refused(429)
        if account.log_in(*pair) is not LoginResult.OPEN:
            return _refused(401)
        user = {
            "id": 4010,
            "email": pair[0],
            "firstname": "Camille",
            "lastname": "VERDELOT",
            "roles": ["ROLE_USER"],
        }
        return JSONResponse({"token": account.new_token(), "user": user})

    async def company(self, request: Request) -> Response:
        siren = request.path_params["siren"]
        if not is_digits(siren, SIREN_DIGITS):
            return _refused(400)
        company = self._state.register.company(siren)
        return (
            JSONResponse(company_document(company))
            if company and self._is_listed(company)
            else _refused(404)
        )

    def _is_listed(self, company: Company) -> bool:
        return company.kind not in NOT_AT_INPI and (
            company.kind is not Kind.YOUNG or self._state.young_at_inpi
        )


def bearer(request: Request) -> str:
    """The bearer token of the request; empty if there is none."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


async def _read_body(request: Request) -> None:
    try:
        posted: object = json.loads(await request.body())
    except (ValueError, RecursionError):
        posted = None
    given = cast("dict[str, object]", posted) if isinstance(posted, dict) else {}
    username, password = given.get("username"), given.get("password")
    good = isinstance(username, str) and isinstance(password, str)
    request.state.pair = (username, password) if good else None


def _error(status: int) -> str:
    return MESSAGES.get(status, f"Simulated answer {status}.")


def _refused(status: int) -> Response:
    return JSONResponse({"code": status, "message": MESSAGES[status]}, status)
