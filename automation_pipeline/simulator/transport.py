"""The connection under a request, which ASGI hides: faults need to close it without an answer."""

import asyncio
from typing import cast

from starlette.requests import Request
from starlette.types import Receive
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

EXTENSION = "simulator.transport"


class OpenProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol, showing each request its transport."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {EXTENSION: {"transport": self.transport}}


async def close_connection(request: Request) -> None:
    """What was sent so far still leaves; then the connection ends and the request is over."""
    cast("asyncio.Transport", request.scope["extensions"][EXTENSION]["transport"]).close()
    await disconnected(request.receive)


def is_connected(request: Request) -> bool:
    return not cast(
        "asyncio.Transport", request.scope["extensions"][EXTENSION]["transport"]
    ).is_closing()


async def disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
