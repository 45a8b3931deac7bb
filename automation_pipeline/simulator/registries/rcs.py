"""API Entreprise: the extract of the register of commerce, for callers with a token."""

import hmac
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from automation_pipeline.simulator.endpoint import Endpoint
from automation_pipeline.simulator.registries.companies import (
    LAST_DAY,
    NOT_IN_RCS,
    SIREN_DIGITS,
    Address,
    Company,
    Kind,
    Officer,
    Person,
    is_siren,
    is_siret,
)
from automation_pipeline.simulator.registries.inpi import bearer
from automation_pipeline.simulator.registries.state import RegistriesState, whole_seconds

PROVIDER = "Infogreffe"
ERRORS = {
    401: ("00101", "Non autorisé", "Le jeton est absent ou n'est pas reconnu."),
    403: ("00100", "Accès interdit", "Le jeton n'ouvre pas cette ressource."),
    404: ("02003", "Entité non trouvée", "Le registre du commerce ne connaît pas ce numéro."),
    409: ("00015", "Conflit", "Un même appel est déjà en cours."),
    429: ("00429", "Trop de requêtes", "Le jeton a épuisé ses appels de cette minute."),
    451: (
        "00451",
        "Indisponible pour raison légale",
        "L'entité s'oppose à la diffusion de ses données.",
    ),
    500: ("00500", "Erreur interne", "API Entreprise a rencontré une erreur."),
    502: ("02999", "Erreur du fournisseur", "Le fournisseur a répondu par une erreur inconnue."),
    503: ("02001", "Fournisseur indisponible", "Le fournisseur est en maintenance."),
    504: ("02002", "Délai dépassé", "Le fournisseur n'a pas répondu à temps."),
}
PARAMETERS = {"siren": "00301", "context": "00201", "object": "00202", "recipient": "00203"}
_OF_PROVIDER = frozenset({404, 502, 503, 504})


def error(
    status: int, parameter: str | None = None, retry_in: int | None = None
) -> dict[str, object]:
    if parameter or status == 422:
        return _unprocessable(parameter or "siren")
    code, title, detail = ERRORS.get(
        status, (f"{status:05d}", "Erreur", f"Simulated answer {status}.")
    )
    meta: dict[str, object] = {"provider": PROVIDER} if status in _OF_PROVIDER else {}
    if retry_in is not None:
        meta["retry_in"] = retry_in
    return {"code": code, "title": title, "detail": detail, "source": {}, "meta": meta}


def errors(status: int, *parameters: str, retry_in: int | None = None) -> Response:
    headers = {} if retry_in is None else {"retry-after": str(retry_in)}
    message = [error(status, one) for one in parameters] or [error(status, retry_in=retry_in)]
    return JSONResponse({"errors": message}, status, headers)


def _unprocessable(parameter: str) -> dict[str, object]:
    return {
        "code": PARAMETERS[parameter],
        "title": "Entité non traitable",
        "detail": f"Le paramètre {parameter} est absent ou n'est pas correct.",
        "source": {"parameter": parameter},
        "meta": {},
    }


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


RCS, PING = "registries.rcs", "registries.rcs.ping"
MOST_OBJECT = 50


def endpoints(state: RegistriesState) -> list[Endpoint]:
    provider = _Provider(state)
    return [
        Endpoint(
            name=RCS,
            path="/registries/entreprise/v3/infogreffe/rcs/unites_legales/{siren}/extrait_kbis",
            handler=provider.answer,
            item=lambda request: request.path_params["siren"],
            refuse=provider.refuse,
            error=lambda status: [error(status)],
            error_key="errors",
            headers=provider.headers,
        ),
        Endpoint(
            name=PING,
            path="/registries/entreprise/ping/infogreffe/rcs",
            handler=provider.ping,
            item=lambda _: "ping",
        ),
    ]


class _Provider:
    def __init__(self, state: RegistriesState) -> None:
        self._state = state

    def refuse(self, request: Request) -> Response | None:
        if not hmac.compare_digest(
            bearer(request).encode("latin-1"), self._state.keys.entreprise_token.encode()
        ):
            return errors(401)
        wait = self._state.entreprise.take()
        return errors(429, retry_in=whole_seconds(wait)) if wait else None

    def headers(self) -> Mapping[str, str]:
        window = self._state.entreprise
        if not window.limit:
            return {}
        return {
            "RateLimit-Limit": str(window.limit),
            "RateLimit-Remaining": str(window.left()),
            "RateLimit-Reset": str(int(self._state.wall() + window.empty_in()) + 1),
        }

    async def answer(self, request: Request) -> Response:
        siren = request.path_params["siren"]
        if wrong := wrong_parameters(siren, request.query_params):
            return errors(422, *wrong)
        company = self._state.register.company(siren)
        if company is None or company.kind in NOT_IN_RCS:
            return errors(404)
        return errors(451) if company.kind is Kind.MASKED else JSONResponse(extract(company))

    async def ping(self, _request: Request) -> Response:
        return JSONResponse({"status": "ok"})


def wrong_parameters(siren: str, given: Mapping[str, str]) -> list[str]:
    """The names of the invalid parameters, in the order of their error messages."""
    reason, recipient = given.get("object", ""), given.get("recipient", "")
    wrong = {
        "siren": not is_siren(siren),
        "context": not given.get("context", "").strip(),
        "object": not (reason.strip() and len(reason) < MOST_OBJECT),
        "recipient": not is_siret(recipient) or recipient[:SIREN_DIGITS] == siren,
    }
    return [name for name, is_wrong in wrong.items() if is_wrong]
