"""Shopify's HTTP face: one address for all of GraphQL, its refusals, and which fault strikes which
call."""

import hmac
import json
import re
from typing import cast
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from automation_pipeline.simulator.endpoint import Endpoint
from automation_pipeline.simulator.fault_rules import THROTTLED
from automation_pipeline.simulator.shop.asked import READ, Asked, UnreadableError, read_asked
from automation_pipeline.simulator.shop.documents import Documents
from automation_pipeline.simulator.shop.executing import Answer, Till
from automation_pipeline.simulator.shop.resolving import playable
from automation_pipeline.simulator.shop.state import ShopState

GRAPHQL = "shop.graphql"
STRANGER = "[API] Invalid API key or access token (unrecognized login or wrong password)"
SAID = {
    401: STRANGER,
    402: "The shop is frozen until its bill is paid.",
    403: "This action requires the merchant's approval for the scope write_products.",
    404: "Not Found",
    423: "The shop is locked and answers no calls.",
    429: "Exceeded the calls allowed to this client. Ask again later.",
    503: "The shop is away for a moment.",
}
_VERSION = re.compile(r"[0-9]{4}-[0-9]{2}|unstable")


def endpoints(token: str, shop: ShopState) -> list[Endpoint]:
    provider = _Provider(token, shop)
    return [
        Endpoint(
            name=GRAPHQL,
            path="/admin/api/{version}/graphql.json",
            handler=provider.answer,
            item=_item,
            methods=("POST",),
            refuse=provider.refuse,
            take_in=provider.take_in,
            error=lambda status: SAID.get(status, f"Simulated answer {status}."),
            error_key="errors",
            instead={THROTTLED: provider.throttled},
            headers=lambda: {"x-request-id": str(uuid4())},
        )
    ]


class _Provider:
    def __init__(self, token: str, shop: ShopState) -> None:
        schema = playable()
        self._token = token
        self._documents = Documents(schema)
        self._till = Till(shop, schema)

    def refuse(self, request: Request) -> Response | None:
        if not _VERSION.fullmatch(request.path_params["version"]):
            return JSONResponse({"errors": SAID[404]}, 404)
        given = request.headers.get("x-shopify-access-token", "")
        if not hmac.compare_digest(given.encode("latin-1"), self._token.encode()):
            return JSONResponse({"errors": STRANGER}, 401)
        return None

    async def take_in(self, request: Request) -> None:
        try:
            request.state.asked = read_asked(await request.body(), self._documents)
        except UnreadableError as error:
            request.state.asked = error

    async def answer(self, request: Request) -> Response:
        asked = cast("Asked | UnreadableError", request.state.asked)
        return (
            _refused(asked)
            if isinstance(asked, UnreadableError)
            else _json(self._till.answer(asked))
        )

    async def throttled(self, request: Request) -> Response:
        asked = cast("Asked | UnreadableError", request.state.asked)
        return (
            _refused(asked)
            if isinstance(asked, UnreadableError)
            else _json(self._till.scripted(asked))
        )


def _item(request: Request) -> str:
    asked = cast("Asked | UnreadableError", request.state.asked)
    return READ if isinstance(asked, UnreadableError) else asked.item


def _refused(error: UnreadableError) -> Response:
    return JSONResponse({"errors": str(error)}, 400)


def _json(answer: Answer) -> Response:
    return Response(json.dumps(answer, ensure_ascii=False), media_type="application/json")
