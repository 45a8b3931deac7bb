"""INPI's national register (RNE): a login that gives a token, and a company by its SIREN."""

import json
from typing import cast

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from automation_pipeline.simulator.endpoint import Endpoint
from automation_pipeline.simulator.registries.accounts import Entry
from automation_pipeline.simulator.registries.companies import NOT_AT_INPI, Company, Kind
from automation_pipeline.simulator.registries.inpi_documents import company_document
from automation_pipeline.simulator.registries.numbers import SIREN_DIGITS, is_digits
from automation_pipeline.simulator.registries.search import client_of
from automation_pipeline.simulator.registries.state import RegistriesState

LOGIN, COMPANY = "registries.inpi.login", "registries.inpi.company"
SAID = {
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
            take_in=_take_in,
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
        """Who is banned, and who just earns it."""
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
        if account.enter(*pair) is not Entry.OPEN:
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
    """Empty without one."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


async def _take_in(request: Request) -> None:
    try:
        posted: object = json.loads(await request.body())
    except (ValueError, RecursionError):
        posted = None
    given = cast("dict[str, object]", posted) if isinstance(posted, dict) else {}
    username, password = given.get("username"), given.get("password")
    good = isinstance(username, str) and isinstance(password, str)
    request.state.pair = (username, password) if good else None


def _error(status: int) -> str:
    return SAID.get(status, f"Simulated answer {status}.")


def _refused(status: int) -> Response:
    return JSONResponse({"code": status, "message": SAID[status]}, status)
