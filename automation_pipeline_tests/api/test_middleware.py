"""The request log."""

import asyncio
import logging

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from automation_pipeline.api.middleware import LONGEST_PATH, RequestMiddleware
from automation_pipeline_tests.cases import every_case


@pytest.mark.parametrize(
    ("path", "logged"), [("/api/fiches", 11), ("/" + "a:" * 25_000, LONGEST_PATH)]
)
def test_long_paths_are_truncated_in_the_log(
    path: str, logged: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        assert message["type"].startswith("http.response")

    scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": []}
    caplog.set_level(logging.INFO, "automation_pipeline")
    asyncio.run(
        RequestMiddleware(Response("done"), max_bytes=1000, seconds=60)(scope, receive, send)
    )
    lines = [
        vars(record)["fields"]
        for record in caplog.records
        if record.getMessage() == "Request answered"
    ]
    assert [line["path"] for line in lines] == [path[:logged]]
    assert lines[0]["status"] == 200


def exchange(
    messages: list[Message], app: ASGIApp, path: str = "/api/fiches", **headers: str
) -> list[Message]:
    """Send a request with the given messages through the middleware; return the response."""
    sent: list[Message] = []
    incoming = iter(messages)

    async def receive() -> Message:
        return next(incoming)

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "query_string": b"",
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
    }
    asyncio.run(RequestMiddleware(app, max_bytes=10, seconds=60)(scope, receive, send))
    return sent


async def read_all(scope: Scope, receive: Receive, send: Send) -> None:
    request = Request(scope, receive)
    await Response(await request.body())(scope, receive, send)


@every_case(
    ("path", "sizes", "status"),
    [
        ("/api/fiches", [10], 200),
        ("/api/fiches", [4, 6], 200),
        ("/api/fiches", [4, 7], 413),
        ("/api/fiches", [11], 413),
        ("/api/audit-configs/import", [20], 200),
        ("/api/audit-configs/import", [21], 413),
        ("/api/fiches\0", [1], 400),
    ],
)
def test_a_body_has_at_most_the_configured_size(path: str, sizes: list[int], status: int) -> None:
    messages: list[Message] = [
        {"type": "http.request", "body": b"x" * size, "more_body": number < len(sizes) - 1}
        for number, size in enumerate(sizes)
    ]
    start, *_ = exchange(messages, read_all, path)
    assert start["status"] == status
    names = dict(start["headers"])
    assert (names[b"x-content-type-options"], len(names[b"x-request-id"])) == (b"nosniff", 32)


@every_case(("length", "status"), [("10", 200), ("11", 413), ("x", 200), ("", 200)])
def test_an_announced_length_beyond_the_limit_is_refused(length: str, status: int) -> None:
    body: Message = {"type": "http.request", "body": b"x", "more_body": False}
    start, *_ = exchange([body], read_all, **{"Content-Length": length})
    assert start["status"] == status


def test_a_bug_after_the_start_of_a_response_sends_no_second_response() -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise ZeroDivisionError

    assert [message["type"] for message in exchange([], broken)] == ["http.response.start"]


def test_other_protocols_pass_unchanged() -> None:
    scopes: list[Scope] = []

    async def app(scope: Scope, _receive: Receive, _send: Send) -> None:
        scopes.append(scope)

    async def unused() -> Message:
        raise AssertionError

    lifespan = {"type": "lifespan"}
    middleware = RequestMiddleware(app, max_bytes=10, seconds=60)
    asyncio.run(middleware(lifespan, unused, unused))  # type: ignore[arg-type]
    assert scopes == [lifespan]


@every_case(
    ("headers", "status"),
    [
        ({"Transfer-Encoding": "chunked"}, 200),
        ({"Content-Length": "1"}, 200),
        ({"Transfer-Encoding": "chunked", "Content-Length": "1"}, 400),
    ],
)
def test_a_request_with_two_lengths_ends_the_connection(
    headers: dict[str, str], status: int
) -> None:
    body: Message = {"type": "http.request", "body": b"x", "more_body": False}
    start, *_ = exchange([body], read_all, **headers)
    closing = dict(start["headers"]).get(b"connection")
    assert (start["status"], closing) == (status, b"close" if status == 400 else None)
