"""The gate in front of every endpoint. It counts the call, applies faults, and lets the provider answer."""

import asyncio
import json
import math
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import cast

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from automation_pipeline.simulator.endpoint import Endpoint
from automation_pipeline.simulator.faults import BROKEN_OFF, FaultRule, Faults
from automation_pipeline.simulator.ledger import Call, Ledger

ERROR_PAGE = b"<html><body><h1>The gateway is having a bad day</h1></body></html>"


def replacement(
    rule: FaultRule, error: Callable[[int], object], key: str = "detail"
) -> Response | None:
    """The answer of a rule that replaces the real answer, or None."""
    if rule.status is None or rule.body:
        return None
    return JSONResponse({key: error(rule.status)}, rule.status, _headers(rule))


def corrupted(
    response: Response, rule: FaultRule, corruptions: Mapping[str, Callable[[bytes], bytes]]
) -> Response:
    """The response with the status, the header and the corrupted body of the rule."""
    media_type = response.headers.get("content-type")
    if corrupt := corruptions.get(rule.body or ""):
        body = corrupt(bytes(response.body))
    else:
        body, media_type = _body(bytes(response.body), media_type, rule)
    return Response(body, rule.status or response.status_code, _headers(rule), media_type)


def _headers(rule: FaultRule) -> dict[str, str]:
    return {} if rule.retry_after is None else {"retry-after": str(rule.retry_after)}


def _body(body: bytes, media_type: str | None, rule: FaultRule) -> tuple[bytes, str | None]:
    is_json = (media_type or "").startswith("application/json")  # false for a stream of events
    match rule.body:
        case "truncated":
            return body[: len(body) // 2], media_type
        case "not_json":
            return ERROR_PAGE, "text/html"
        case "empty":
            return b"", media_type
        case "wrong_types" if is_json:
            return json.dumps(_mistyped(json.loads(body))).encode(), media_type
        case "success_false" if is_json:
            failed = {**json.loads(body), "success": False, "message": "Simulated failure."}
            return json.dumps(failed).encode(), media_type
        case _:
            return body, media_type


def _mistyped(value: object) -> object:
    """The document with each text in a list, and each number and boolean as text."""
    if isinstance(value, dict):
        return {key: _mistyped(inner) for key, inner in cast("dict[str, object]", value).items()}
    if isinstance(value, list):
        return [_mistyped(inner) for inner in cast("list[object]", value)]
    if isinstance(value, str):
        return [value]
    return value if value is None else str(value)


CHUNK = bytes(64 * 1024)
SECONDS_BETWEEN_PIECES = 0.1


async def send_stretched(
    response: Response, send: Send, *, pad_bytes: int, trickle_seconds: float
) -> None:
    """Send the body and then zeros, spread evenly over this time. The declared length includes the zeros."""
    body = bytes(response.body)
    total = len(body) + pad_bytes
    response.headers["content-length"] = str(total)
    await send(
        {
            "type": "http.response.start",
            "status": response.status_code,
            "headers": response.raw_headers,
        }
    )
    pieces = max(1, min(total, math.ceil(trickle_seconds / SECONDS_BETWEEN_PIECES)))
    for number in range(pieces):
        if trickle_seconds:
            await asyncio.sleep(trickle_seconds / pieces)
        await _send_between(body, total * number // pieces, total * (number + 1) // pieces, send)
    await send({"type": "http.response.body"})


async def _send_between(body: bytes, start: int, end: int, send: Send) -> None:
    """The bytes from `start` to `end` of the padded body, at most a chunk at a time."""
    while start < end:
        upto = min(end, start + len(CHUNK))
        piece = body[start:upto] if start < len(body) else CHUNK[: upto - start]
        await send({"type": "http.response.body", "body": piece, "more_body": True})
        start += len(piece)


EXTENSION = "simulator.transport"


class OpenProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol. It gives each request access to its transport."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {EXTENSION: {"transport": self.transport}}


async def close_connection(request: Request) -> None:
    """Send the bytes written so far, and close the connection."""
    cast("asyncio.Transport", request.scope["extensions"][EXTENSION]["transport"]).close()
    await disconnected(request.receive)


def is_connected(request: Request) -> bool:
    return not cast(
        "asyncio.Transport", request.scope["extensions"][EXTENSION]["transport"]
    ).is_closing()


async def disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


@dataclass
class Conditions:
    """Conditions that the control endpoints set and every gate applies."""

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
            if endpoint.read_body:
                try:
                    await endpoint.read_body(request)
                except ClientDisconnect:
                    return
            item = endpoint.item(request)
            call.set_item(item)
            rule = (
                None
                if response
                else conditions.faults.matching_rule(endpoint.name, item, call.number)
            )
            if latency := conditions.latency_seconds + (rule.latency_seconds if rule else 0):
                await asyncio.sleep(latency)
            if rule is None:
                response = response or await endpoint.handler(request)
                call.status = response.status_code
                await self._send(self._with_headers(response), request, send)
            else:
                await self._misbehave(request, send, rule, call)

    async def _misbehave(self, request: Request, send: Send, rule: FaultRule, call: Call) -> None:
        if rule.after:
            await self._endpoint.handler(request)
        if rule.hang:
            await self._wait_for_disconnect(request)
        if rule.gives_no_answer:
            await close_connection(request)
            return
        response = await self._bad_response(request, rule)
        call.status = response.status_code
        if rule.body in BROKEN_OFF:
            await _send_half(response, send)
            if rule.body == "stalled":
                await self._wait_for_disconnect(request)
            await close_connection(request)
        elif rule.is_stretched:
            sending = send_stretched(
                response, send, pad_bytes=rule.pad_bytes, trickle_seconds=rule.trickle_seconds
            )
            if await _first_of(sending, self._wait_for_disconnect(request)):
                self._endpoint.on_answered(request, response)
            else:
                await close_connection(request)
        else:
            await self._send(response, request, send)

    async def _bad_response(self, request: Request, rule: FaultRule) -> Response:
        endpoint = self._endpoint
        error = replacement(rule, endpoint.error, endpoint.error_key)
        if error is None:
            answer = endpoint.replacements.get(rule.body or "", endpoint.handler)
            error = corrupted(await answer(request), rule, endpoint.corruptions)
        return self._with_headers(error)

    def _with_headers(self, response: Response) -> Response:
        response.headers.update(self._endpoint.headers())
        return response

    async def _send(self, response: Response, request: Request, send: Send) -> None:
        was_connected = is_connected(request)
        await response(request.scope, request.receive, send)
        if was_connected:
            self._endpoint.on_answered(request, response)

    async def _wait_for_disconnect(self, request: Request) -> None:
        await _first_of(disconnected(request.receive), self._conditions.faults.cleared.wait())


async def _send_half(response: Response, send: Send) -> None:
    """Declare the whole length, and send half of the body."""
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
    """Wait until one of them ends. Return whether it was the first argument."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    return tasks[0] in done
