"""The endpoints under /_sim, through which tests and benchmarks set conditions and read the calls."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from automation_pipeline.simulator.cap import MAX_PER_MINUTE, Cap
from automation_pipeline.simulator.endpoint import Endpoint
from automation_pipeline.simulator.faults import BadRequestError, read_rules
from automation_pipeline.simulator.gate import Conditions
from automation_pipeline.simulator.llm.control import ModelControl, ModelState
from automation_pipeline.simulator.llm.openai import COMPLETE
from automation_pipeline.simulator.pusher.channels_api import Published
from automation_pipeline.simulator.pusher.control import PusherControl
from automation_pipeline.simulator.registries.control import RegistriesControl
from automation_pipeline.simulator.registries.state import RegistriesState
from automation_pipeline.simulator.shop.control import ShopControl
from automation_pipeline.simulator.shop.state import ShopState

MAX_LATENCY_SECONDS = 600


@dataclass(frozen=True)
class States:
    """The state of the providers."""

    speech_cap: Cap
    model: ModelState
    published: Published
    shop: ShopState
    registries: RegistriesState

    def reset(self) -> None:
        for state in (self.speech_cap, self.model, self.published, self.shop, self.registries):
            state.reset()


class Control:
    def __init__(
        self, conditions: Conditions, endpoints: Mapping[str, Endpoint], states: States
    ) -> None:
        self._conditions = conditions
        self._endpoints = endpoints
        self._states = states

    def routes(self) -> list[Route]:
        llm = ModelControl(
            self._states.model, lambda: self._conditions.ledger.routes[COMPLETE].calls
        )
        return [
            *llm.routes(),
            *PusherControl(self._states.published).routes(),
            *ShopControl(self._states.shop).routes(),
            *RegistriesControl(self._states.registries, self._conditions.ledger).routes(),
            Route("/_sim/faults", self.add_faults, methods=["POST"]),
            Route("/_sim/faults", self.clear_faults, methods=["DELETE"]),
            Route("/_sim/calls", self.calls, methods=["GET"]),
            Route("/_sim/reset", self.reset, methods=["POST"]),
            Route("/_sim/latency", self.set_latency, methods=["POST"]),
            Route("/_sim/speech", self.set_speech, methods=["POST"]),
        ]

    async def add_faults(self, request: Request) -> Response:
        rules = read_rules(await _body(request), self._endpoints)
        return JSONResponse({"rules": self._conditions.faults.add(rules)})

    async def clear_faults(self, _request: Request) -> Response:
        self._conditions.faults.clear()
        return JSONResponse({"rules": 0})

    async def calls(self, request: Request) -> Response:
        query = request.query_params
        route = query.get("route")
        if route is not None and route not in self._endpoints:
            raise BadRequestError(
                f"There is no route {route!r}; the routes are {', '.join(self._endpoints)}."
            )
        summary = self._conditions.ledger.summary(
            route, query.get("item"), times=query.get("times") == "1"
        )
        return JSONResponse(summary)

    async def reset(self, _request: Request) -> Response:
        """Clear the ledger, the faults, the calls that count towards caps, the replies of the model, the published
        events, the changes to the shop, and the tokens and bans of the registries. Settings, such as the base
        latency, caps and sizes, stay."""
        self._conditions.faults.clear()
        self._conditions.ledger.clear()
        self._states.reset()
        return JSONResponse({"reset": True})

    async def set_latency(self, request: Request) -> Response:
        seconds = _seconds(await _body(request))
        self._conditions.latency_seconds = seconds
        return JSONResponse({"seconds": seconds})

    async def set_speech(self, request: Request) -> Response:
        self._states.speech_cap.per_minute = _per_minute(await _body(request))
        return JSONResponse({"per_minute": self._states.speech_cap.per_minute})


async def _body(request: Request) -> object:
    try:
        return json.loads(await request.body())
    except (ValueError, RecursionError) as error:
        raise BadRequestError("The body is not valid JSON.") from error


def _seconds(posted: object) -> float:
    fields = cast("dict[str, object]", posted) if isinstance(posted, dict) else {}
    seconds = fields.get("seconds")
    if (
        set(fields) != {"seconds"}
        or isinstance(seconds, bool)
        or not isinstance(seconds, int | float)
    ):
        raise BadRequestError('The body must be {"seconds": number}.')
    if math.isnan(seconds) or not 0 <= seconds <= MAX_LATENCY_SECONDS:
        raise BadRequestError(f"The latency must be between 0 and {MAX_LATENCY_SECONDS} seconds.")
    return float(seconds)


def _per_minute(posted: object) -> int:
    fields = cast("dict[str, object]", posted) if isinstance(posted, dict) else {}
    number = fields.get("per_minute")
    if set(fields) != {"per_minute"} or isinstance(number, bool) or not isinstance(number, int):
        raise BadRequestError('The body must be {"per_minute": whole number}.')
    if not 0 <= number <= MAX_PER_MINUTE:
        raise BadRequestError(
            f"The cap must be between 0, for none, and {MAX_PER_MINUTE} calls per minute."
        )
    return number
