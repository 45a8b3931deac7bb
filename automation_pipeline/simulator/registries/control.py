"""`/_sim/registries`: limits, what the registries were asked and how fast; the numbers of companies
that are there."""

import json
from collections import Counter
from collections.abc import Mapping
from typing import cast

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from automation_pipeline.simulator.fault_rules import BadRequestError
from automation_pipeline.simulator.ledger import Ledger
from automation_pipeline.simulator.registries.companies import Kind
from automation_pipeline.simulator.registries.inpi import COMPANY, LOGIN
from automation_pipeline.simulator.registries.peaks import peak
from automation_pipeline.simulator.registries.rcs import RCS
from automation_pipeline.simulator.registries.search import SEARCH
from automation_pipeline.simulator.registries.settings import changed, shown
from automation_pipeline.simulator.registries.state import RegistriesState

SOURCES = {"search": (SEARCH,), "inpi": (LOGIN, COMPANY), "inpi.login": (LOGIN,), "rcs": (RCS,)}
PEAKS = {
    "peak_per_second": 1.0,
    "peak_per_30_seconds": 30.0,
    "peak_per_minute": 60.0,
    "peak_per_day": 86_400.0,
}
MOST_SIRENS = 5_000


class RegistriesControl:
    def __init__(self, state: RegistriesState, ledger: Ledger) -> None:
        self._state = state
        self._ledger = ledger

    def routes(self) -> list[Route]:
        return [
            Route("/_sim/registries", self.show, methods=["GET"]),
            Route("/_sim/registries", self.set_up, methods=["PUT"]),
            Route("/_sim/registries/sirens", self.sirens, methods=["GET"]),
            Route("/_sim/registries/tokens", self.expire, methods=["DELETE"]),
        ]

    async def show(self, _request: Request) -> Response:
        """Calls and their peaks as they arrived, faults and refusals included."""
        account = self._state.account
        return JSONResponse(
            {
                **shown(self._state),
                "sources": {name: self._source(routes) for name, routes in SOURCES.items()},
                "inpi_bans": self._state.inpi_bans.count,
                "inpi_logins": account.logins,
                "inpi_blocked": account.is_blocked,
            }
        )

    async def set_up(self, request: Request) -> Response:
        """What is not named stays; all is good or nothing is taken. Calls that were counted stay
        counted."""
        changed(self._state, _object(await request.body()))
        return JSONResponse(shown(self._state))

    async def sirens(self, request: Request) -> Response:
        asked = request.query_params
        kind = _kind(asked["kind"]) if "kind" in asked else None
        sirens = self._state.register.sirens(_count(asked.get("count", "20")), kind)
        found = [company for siren in sirens if (company := self._state.register.company(siren))]
        return JSONResponse(
            {
                "sirens": sirens,
                "companies": [
                    {
                        "siren": one.siren,
                        "siret": one.head_office.siret,
                        "kind": one.kind,
                        "name": one.name,
                    }
                    for one in found
                ],
            }
        )

    async def expire(self, _request: Request) -> Response:
        return JSONResponse({"expired": self._state.account.expire()})

    def _source(self, routes: tuple[str, ...]) -> Mapping[str, object]:
        ledgers = [self._ledger.routes[route] for route in routes]
        times = [call.arrived_at for ledger in ledgers for call in ledger.arrivals]
        statuses = sum((ledger.statuses for ledger in ledgers), Counter[str]())
        return {
            "calls": sum(ledger.calls for ledger in ledgers),
            "refused": statuses["429"],
            "statuses": dict(statuses),
            **{name: peak(times, seconds) for name, seconds in PEAKS.items()},
        }


def _kind(text: str) -> Kind:
    if text not in set(Kind):
        raise BadRequestError(f"There is no kind {text!r} of company; there are {', '.join(Kind)}.")
    return Kind(text)


def _count(text: str) -> int:
    if not (
        text.isascii()
        and text.isdecimal()
        and len(text) <= len(str(MOST_SIRENS))
        and int(text) <= MOST_SIRENS
    ):
        raise BadRequestError(f"'count' must be a whole number from 0 to {MOST_SIRENS}.")
    return int(text)


def _object(body: bytes) -> Mapping[str, object]:
    try:
        posted: object = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadRequestError("The body is not valid JSON.") from error
    if not isinstance(posted, dict):
        raise BadRequestError("The body must be a JSON object.")
    return cast("dict[str, object]", posted)
