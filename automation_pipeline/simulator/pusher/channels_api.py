"""Pusher's HTTP face: events, batches of them, and the channels. A call is about its first
channel."""

import json
import time
from collections.abc import Callable
from typing import cast

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from automation_pipeline.simulator.endpoint import Endpoint
from automation_pipeline.simulator.pusher.messages import (
    Message,
    RefusedError,
    read_batch,
    read_event,
)
from automation_pipeline.simulator.pusher.signature import App, is_of_body, refusal
from automation_pipeline.simulator.pusher.state import Published

NO_CHANNEL = "no channel"


def endpoints(app: App, published: Published) -> list[Endpoint]:
    provider = _Provider(app, published)
    return [
        _endpoint("pusher.event", "events", provider, provider.publishing(read_event), "POST"),
        _endpoint(
            "pusher.batch", "batch_events", provider, provider.publishing(read_batch), "POST"
        ),
        _endpoint("pusher.channels", "channels", provider, provider.channels, "GET"),
    ]


def _endpoint(
    name: str,
    last: str,
    provider: "_Provider",
    answer: "Callable[[Request], Response]",
    method: str,
) -> Endpoint:
    async def handler(request: Request) -> Response:
        return answer(request)

    return Endpoint(
        name=name,
        path=f"/apps/{{app_id}}/{last}",
        handler=handler,
        item=_item,
        methods=(method,),
        refuse=provider.refuse,
        take_in=_take_in,
        error_key="error",
    )


class _Provider:
    def __init__(self, app: App, published: Published) -> None:
        self._app = app
        self._published = published

    def refuse(self, request: Request) -> Response | None:
        if request.path_params["app_id"] != self._app.app_id:
            return JSONResponse({"error": "There is no such application here"}, 404)
        query = request.query_params.multi_items()
        reason = refusal(self._app, request.method, request.url.path, query, time.time())
        return None if reason is None else JSONResponse({"error": reason}, 401)

    def publishing(self, read: Callable[[bytes], list[Message]]) -> Callable[[Request], Response]:
        """All of a call's events are taken, or none."""

        def publish(request: Request) -> Response:
            body = cast("bytes", request.state.body)
            if not is_of_body(request.query_params.get("body_md5"), body):
                return JSONResponse({"error": "body_md5 is not the one of this body"}, 401)
            try:
                self._published.add(read(body))
            except RefusedError as refused:
                return JSONResponse({"error": str(refused)}, refused.status)
            return JSONResponse({})

        return publish

    def channels(self, _request: Request) -> Response:
        """No channel has subscribers, because there are no browsers here."""
        return JSONResponse({"channels": {}})


async def _take_in(request: Request) -> None:
    request.state.body = await request.body()


def _item(request: Request) -> str:
    try:
        posted = json.loads(request.state.body)
        first = posted["batch"][0] if "batch" in posted else posted
        return str(first.get("channel") or first["channels"][0])
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        return NO_CHANNEL
