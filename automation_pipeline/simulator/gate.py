"""In front of every endpoint: the ledger writes the call down, the faults may strike it, then the provider answers."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from automation_pipeline.simulator.endpoint import Endpoint
from automation_pipeline.simulator.fault_rules import FaultRule
from automation_pipeline.simulator.faults import Faults
from automation_pipeline.simulator.ledger import Call, Ledger
from automation_pipeline.simulator.spoiling import replacement, spoiled
from automation_pipeline.simulator.transport import close_connection, disconnected


@dataclass
class Conditions:
    """What the control surface turns and every gate obeys."""

    ledger: Ledger
    faults: Faults
    latency_seconds: float


class Gate:
    """The ASGI application of one endpoint."""

    def __init__(self, endpoint: Endpoint, conditions: Conditions) -> None:
        self._endpoint = endpoint
        self._conditions = conditions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint, conditions = self._endpoint, self._conditions
        request = Request(scope, receive, send)
        item = endpoint.item(request)
        with conditions.ledger.call(endpoint.name, item) as call:
            rule = conditions.faults.striking(endpoint.name, item, call.number)
            if latency := conditions.latency_seconds + (rule.latency_seconds if rule else 0):
                await asyncio.sleep(latency)
            if rule is None:
                response = await endpoint.handler(request)
                call.status = response.status_code
                await response(scope, receive, send)
            else:
                await self._misbehave(request, send, rule, call)

    async def _misbehave(self, request: Request, send: Send, rule: FaultRule, call: Call) -> None:
        if rule.hang:
            await _first_of(disconnected(request.receive), self._conditions.faults.cleared.wait())
        if rule.silent:
            await close_connection(request)
            return
        response = replacement(rule) or spoiled(await self._endpoint.handler(request), rule)
        call.status = response.status_code
        if rule.body == "cut_short":
            await _send_half(response, request, send)
        else:
            await response(request.scope, request.receive, send)


async def _send_half(response: Response, request: Request, send: Send) -> None:
    """Declares the whole length, sends half of it and closes."""
    await send({"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers})
    body = bytes(response.body)
    await send({"type": "http.response.body", "body": body[: len(body) // 2], "more_body": True})
    await close_connection(request)


async def _first_of(*waits: Coroutine[object, object, object]) -> None:
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
