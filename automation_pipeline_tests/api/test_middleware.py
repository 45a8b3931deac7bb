"""The request log."""

import asyncio
import logging

import pytest
from starlette.responses import Response
from starlette.types import Message

from automation_pipeline.api.middleware import LONGEST_PATH, RequestMiddleware


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
