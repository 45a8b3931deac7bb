"""In front of every endpoint: the ledger writes the call down, the faults may strike it, then the
provider answers."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from automation_pipeline.simulator.endpoint import Endpoint
from automation_pipeline.simulator.fault_rules import BROKEN_OFF, FaultRule
from automation_pipeline.simulator.faults import Faults
from automation_pipeline.simulator.ledger import Call, Ledger
from automation_pipeline.simulator.spoiling import replacement, spoiled
from automation_pipeline.simulator.streaming import send_stretched
from automation_pipeline.simulator.transport import close_connection, disconnected, is_connected


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
        with conditions.ledger.call(endpoint.name) as call:
            response = endpoint.refuse(request)
            if endpoint.take_in:
                try:
                    await endpoint.take_in(request)
                except ClientDisconnect:
                    return
            item = endpoint.item(request)
            call.name(item)
            rule = (
                None if response else conditions.faults.striking(endpoint.name, item, call.number)
            )
            if latency := conditions.latency_seconds + (rule.latency_seconds if rule else 0):
                await asyncio.sleep(latency)
            if rule is None:
                response = response or await endpoint.handler(request)
                call.status = response.status_code
                await self._give(self._headed(response), request, send)
            else:
                await self._misbehave(request, send, rule, call)

    async def _misbehave(self, request: Request, send: Send, rule: FaultRule, call: Call) -> None:
        if rule.after:
            await self._endpoint.handler(request)
        if rule.hang:
            await self._given_up_on(request)
        if rule.silent:
            await close_connection(request)
            return
        response = await self._bad_response(request, rule)
        call.status = response.status_code
        if rule.body in BROKEN_OFF:
            await _send_half(response, send)
            if rule.body == "stalled":
                await self._given_up_on(request)
            await close_connection(request)
        elif rule.stretched:
            sending = send_stretched(
                response, send, pad_bytes=rule.pad_bytes, trickle_seconds=rule.trickle_seconds
            )
            if await _first_of(sending, self._given_up_on(request)):
                self._endpoint.given(request, response)
            else:
                await close_connection(request)
        else:
            await self._give(response, request, send)

    async def _bad_response(self, request: Request, rule: FaultRule) -> Response:
        endpoint = self._endpoint
        error = replacement(rule, endpoint.error, endpoint.error_key)
        if error is None:
            answer = endpoint.instead.get(rule.body or "", endpoint.handler)
            error = spoiled(await answer(request), rule, endpoint.spoils)
        return self._headed(error)

    def _headed(self, response: Response) -> Response:
        response.headers.update(self._endpoint.headers())
        return response

    async def _give(self, response: Response, request: Request, send: Send) -> None:
        is_there = is_connected(request)
        await response(request.scope, request.receive, send)
        if is_there:
            self._endpoint.given(request, response)

    async def _given_up_on(self, request: Request) -> None:
        await _first_of(disconnected(request.receive), self._conditions.faults.cleared.wait())


async def _send_half(response: Response, send: Send) -> None:
    """Declares the whole length and sends half of it."""
    await send(
        {
            "type": "http.response.start",
            "status": response.status_code,
            "headers": response.raw_headers,
        }
    )
    body = bytes(response.body)
    await send({"type": "http.response.body", "body": body[: len(body) // 2], "more_body": True})


async def _first_of(*waits: Coroutine[object, object, object]) -> bool:
    """Ends with the first that ends; whether that was the first one given."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    return tasks[0] in done
