"""`/_sim/registries`: configures the limits, and shows calls and companies."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import cast

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from automation_pipeline.simulator.faults import BadRequestError
from automation_pipeline.simulator.ledger import Ledger
from automation_pipeline.simulator.registries.companies import Kind
from automation_pipeline.simulator.registries.inpi import COMPANY, LOGIN
from automation_pipeline.simulator.registries.rcs import RCS
from automation_pipeline.simulator.registries.search import SEARCH
from automation_pipeline.simulator.registries.state import RegistriesState, Window


def peak(times: Iterable[float], seconds: float) -> int:
    """The maximum number of calls in any window of this length."""
    ordered = sorted(times)
    first = maximum = 0
    for last, at in enumerate(ordered):
        while ordered[first] + seconds <= at:
            first += 1
        maximum = max(maximum, last - first + 1)
    return maximum


MOST_CALLS, MOST_SECONDS = 1_000_000, 86_400.0
LIMITS: Mapping[str, Callable[[RegistriesState], Window]] = {
    "search_per_second": lambda state: state.search,
    "inpi_per_minute": lambda state: state.inpi,
    "inpi_per_day": lambda state: state.inpi_quota,
    "inpi_logins_per_30_seconds": lambda state: state.inpi_logins,
    "entreprise_per_minute": lambda state: state.entreprise,
}
SECONDS = ("inpi_ban_seconds", "inpi_token_seconds")
YOUNG = "young_at_inpi"
NAMES = (*LIMITS, *SECONDS, YOUNG)


def settings_of(state: RegistriesState) -> dict[str, object]:
    return {
        **{name: window(state).limit for name, window in LIMITS.items()},
        "inpi_ban_seconds": state.inpi_bans.seconds,
        "inpi_token_seconds": state.account.token_seconds,
        YOUNG: state.young_at_inpi,
    }


def change_settings(state: RegistriesState, given: Mapping[str, object]) -> None:
    if not given or set(given) - set(NAMES):
        raise BadRequestError(f"The body must be an object with some of {', '.join(NAMES)}.")
    limits = {name: _limit(name, given[name]) for name in LIMITS if name in given}
    seconds = {name: _seconds(name, given[name]) for name in SECONDS if name in given}
    young = given.get(YOUNG, state.young_at_inpi)
    if not isinstance(young, bool):
        raise BadRequestError(f"{YOUNG!r} must be true or false.")
    for name, limit in limits.items():
        LIMITS[name](state).limit = limit
    state.inpi_bans.seconds = seconds.get("inpi_ban_seconds", state.inpi_bans.seconds)
    state.account.token_seconds = seconds.get("inpi_token_seconds", state.account.token_seconds)
    state.young_at_inpi = young


def _limit(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_CALLS:
        raise BadRequestError(f"{name!r} must be a whole number from 0, for none, to {MOST_CALLS}.")
    return value


def _seconds(name: str, value: object) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value <= MOST_SECONDS
    ):
        raise BadRequestError(f"{name!r} must be a number of seconds from 0 to {MOST_SECONDS:.0f}.")
    return float(value)


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
        """Show the settings, and the calls of each source with their peaks. Faulted and refused calls count."""
        account = self._state.account
        return JSONResponse(
            {
                **settings_of(self._state),
                "sources": {name: self._source(routes) for name, routes in SOURCES.items()},
                "inpi_bans": self._state.inpi_bans.count,
                "inpi_logins": account.logins,
                "inpi_blocked": account.is_blocked,
            }
        )

    async def set_up(self, request: Request) -> Response:
        """Change the named settings. If one is invalid, none changes. Counted calls stay counted."""
        change_settings(self._state, _object(await request.body()))
        return JSONResponse(settings_of(self._state))

    async def sirens(self, request: Request) -> Response:
        query = request.query_params
        kind = _kind(query["kind"]) if "kind" in query else None
        sirens = self._state.register.sirens(_count(query.get("count", "20")), kind)
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
