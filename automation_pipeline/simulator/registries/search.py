"""Recherche d'entreprises: one search, open to all, at seven calls a second."""

from collections.abc import Mapping
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from automation_pipeline.simulator.endpoint import Endpoint
from automation_pipeline.simulator.registries.companies import Company
from automation_pipeline.simulator.registries.limits import whole
from automation_pipeline.simulator.registries.numbers import SIREN_DIGITS, SIRET_DIGITS, is_digits
from automation_pipeline.simulator.registries.search_documents import INCLUDED, result
from automation_pipeline.simulator.registries.state import RegistriesState

SEARCH = "registries.search"
MOST_PER_PAGE, MOST_RESULTS, LEAST_LETTERS = 25, 10_000, 3
ALWAYS_INCLUDED = ("siege", "complements", "dirigeants", "finances", "matching_etablissements")


class RefusedError(Exception):
    """The search cannot be made; the message says why."""


@dataclass(frozen=True)
class Asked:
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
        return JSONResponse({"erreur": "Trop de requêtes."}, 429, {"retry-after": str(whole(wait))})

    async def answer(self, request: Request) -> Response:
        try:
            asked = read_asked(request.query_params)
        except RefusedError as error:
            return JSONResponse({"erreur": str(error)}, 400)
        found = self._found(asked.q)
        first = (asked.page - 1) * asked.per_page
        return JSONResponse(
            {
                "results": [
                    result(company, siret, asked.parts)
                    for company, siret in found[first : first + asked.per_page]
                ],
                "total_results": len(found),
                "page": asked.page,
                "per_page": asked.per_page,
                "total_pages": -(-len(found) // asked.per_page),
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
        return [(company, None) for company in self._state.register.named(q)]


def read_asked(given: Mapping[str, str]) -> Asked:
    q = given.get("q", "").strip()
    if len(q) < LEAST_LETTERS:
        raise RefusedError("3 caractères minimum pour les termes de la requête.")
    page, per_page = _whole(given, "page", 1, 1000), _whole(given, "per_page", 10, MOST_PER_PAGE)
    _whole(given, "limite_matching_etablissements", 10, 100)
    if page * per_page > MOST_RESULTS:
        raise RefusedError(f"La page demandée dépasse les {MOST_RESULTS} premiers résultats.")
    return Asked(q, page, per_page, _parts(given))


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
    """Numbers may be written with spaces."""
    return "".join(q.split())


def _whole(given: Mapping[str, str], name: str, default: int, most: int) -> int:
    text = given.get(name, str(default))
    if not (
        text.isascii()
        and text.isdecimal()
        and len(text) <= len(str(most))
        and 1 <= int(text) <= most
    ):
        raise RefusedError(f"Veuillez indiquer un paramètre `{name}` entre `1` et `{most}`.")
    return int(text)
