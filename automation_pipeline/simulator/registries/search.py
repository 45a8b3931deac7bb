"""Recherche d'entreprises: a public search, limited to seven calls per second."""

from collections.abc import Mapping
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from automation_pipeline.simulator.endpoint import Endpoint
from automation_pipeline.simulator.registries.companies import (
    LAST_DAY,
    PEOPLE,
    SIREN_DIGITS,
    SIRET_DIGITS,
    Address,
    Company,
    Establishment,
    Kind,
    Officer,
    is_digits,
    vat_number,
)
from automation_pipeline.simulator.registries.state import RegistriesState, whole_seconds

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
    """A company in the format of the search. The establishment of a requested SIRET is in
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
    """The fields of an address. A hidden address shows only its commune."""
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


SEARCH = "registries.search"
MOST_PER_PAGE, MOST_RESULTS, LEAST_LETTERS = 25, 10_000, 3
ALWAYS_INCLUDED = ("siege", "complements", "dirigeants", "finances", "matching_etablissements")


class RefusedError(Exception):
    """The search is invalid; the message gives the reason."""


@dataclass(frozen=True)
class SearchQuery:
    q: str
    page: int
    per_page: int
    parts: frozenset[str]


def endpoint(state: RegistriesState) -> Endpoint:
    provider = _Provider(state)
    return Endpoint(
        name=SEARCH,
        path="/registries/search/search",
        handler=provider.answer,
        item=lambda request: _number(request.query_params.get("q", "")),
        refuse=provider.refuse,
        error_key="erreur",
    )


class _Provider:
    def __init__(self, state: RegistriesState) -> None:
        self._state = state

    def refuse(self, request: Request) -> Response | None:
        wait = self._state.search.take(client_of(request))
        if not wait:
            return None
        return JSONResponse(
            {"erreur": "Trop de requêtes."}, 429, {"retry-after": str(whole_seconds(wait))}
        )

    async def answer(self, request: Request) -> Response:
        try:
            query = parse_query(request.query_params)
        except RefusedError as error:
            return JSONResponse({"erreur": str(error)}, 400)
        found = self._found(query.q)
        first = (query.page - 1) * query.per_page
        return JSONResponse(
            {
                "results": [
                    result(company, siret, query.parts)
                    for company, siret in found[first : first + query.per_page]
                ],
                "total_results": len(found),
                "page": query.page,
                "per_page": query.per_page,
                "total_pages": -(-len(found) // query.per_page),
            }
        )

    def _found(self, q: str) -> list[tuple[Company, str | None]]:
        number = _number(q)
        if is_digits(number, SIREN_DIGITS):
            company = self._state.register.company(number)
            return [(company, None)] if company else []
        if is_digits(number, SIRET_DIGITS):
            company = self._state.register.company(number[:SIREN_DIGITS])
            return [(company, number)] if company and company.establishment(number) else []
        return [(company, None) for company in self._state.register.search_by_name(q)]


def parse_query(given: Mapping[str, str]) -> SearchQuery:
    q = given.get("q", "").strip()
    if len(q) < LEAST_LETTERS:
        raise RefusedError("3 caractères minimum pour les termes de la requête.")
    page, per_page = _whole(given, "page", 1, 1000), _whole(given, "per_page", 10, MOST_PER_PAGE)
    _whole(given, "limite_matching_etablissements", 10, 100)
    if page * per_page > MOST_RESULTS:
        raise RefusedError(f"La page demandée dépasse les {MOST_RESULTS} premiers résultats.")
    return SearchQuery(q, page, per_page, _parts(given))


def client_of(request: Request) -> str:
    return request.client.host if request.client else ""


def _parts(given: Mapping[str, str]) -> frozenset[str]:
    minimal, included = given.get("minimal", "false").lower(), given.get("include")
    if minimal not in {"true", "false"}:
        raise RefusedError("Veuillez indiquer un paramètre `minimal` booléen : `true` ou `false`.")
    if included is None:
        return frozenset() if minimal == "true" else frozenset(ALWAYS_INCLUDED)
    if minimal == "false":
        raise RefusedError("Le paramètre `include` va avec `minimal=true`.")
    parts = frozenset(part.strip() for part in included.lower().split(","))
    if not parts <= set(INCLUDED):
        raise RefusedError(f"Le paramètre `include` connaît : {', '.join(INCLUDED)}.")
    return parts


def _number(q: str) -> str:
    """The query without spaces, as numbers may contain spaces."""
    return "".join(q.split())


def _whole(given: Mapping[str, str], name: str, default: int, maximum: int) -> int:
    text = given.get(name, str(default))
    if not (
        text.isascii()
        and text.isdecimal()
        and len(text) <= len(str(maximum))
        and 1 <= int(text) <= maximum
    ):
        raise RefusedError(f"Veuillez indiquer un paramètre `{name}` entre `1` et `{maximum}`.")
    return int(text)
