"""API Entreprise: the extract from the register of commerce, for public bodies with a token."""

import hmac
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from automation_pipeline.simulator.endpoint import Endpoint
from automation_pipeline.simulator.registries.companies import NOT_IN_RCS, Kind
from automation_pipeline.simulator.registries.inpi import bearer
from automation_pipeline.simulator.registries.limits import whole
from automation_pipeline.simulator.registries.numbers import SIREN_DIGITS, is_siren, is_siret
from automation_pipeline.simulator.registries.rcs_documents import extract
from automation_pipeline.simulator.registries.rcs_errors import error, errors
from automation_pipeline.simulator.registries.state import RegistriesState

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
        return errors(429, retry_in=whole(wait)) if wait else None

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
    """In the order in which they are complained of."""
    reason, recipient = given.get("object", ""), given.get("recipient", "")
    wrong = {
        "siren": not is_siren(siren),
        "context": not given.get("context", "").strip(),
        "object": not (reason.strip() and len(reason) < MOST_OBJECT),
        "recipient": not is_siret(recipient) or recipient[:SIREN_DIGITS] == siren,
    }
    return [name for name, is_wrong in wrong.items() if is_wrong]
