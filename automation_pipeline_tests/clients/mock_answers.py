"""Answers of a mock transport, and use of a client until it is closed."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import httpx

Client = TypeVar("Client", bound=Any)
Result = TypeVar("Result")
Answer = Callable[[httpx.Request], httpx.Response]


def with_client(client: Client, act: Callable[[Client], Awaitable[Result]]) -> Result:
    async def acted() -> Result:
        try:
            return await act(client)
        finally:
            await client.aclose()

    return asyncio.run(acted())


def json_answer(document: object, status: int = 200, **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda _: httpx.Response(status, json=document, headers=named)


def failing_answer(error: Exception) -> Answer:
    def answer(_: httpx.Request) -> httpx.Response:
        raise error

    return answer
