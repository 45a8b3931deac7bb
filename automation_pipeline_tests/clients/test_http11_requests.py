"""Requests of HTTP/1.1 on real sockets: what arrives of them, and what must not be said."""

import asyncio
from contextlib import suppress
from typing import Any

import httpx
import pytest

from automation_pipeline_tests.clients.stage import (
    OK,
    Play,
    Stage,
    in_pieces,
    meet,
    saying,
)
from automation_pipeline_tests.waiting import come_true

LARGE = b"0123456789abcdef" * 524_288


@pytest.mark.parametrize(
    ("method", "header"),
    [
        ("GET", (b"X-A", b"a\r\nX-B: b")),
        ("GET", (b"X-A", b"a\rb")),
        ("GET", (b"X-A", b"a\nb")),
        ("GET", (b"X-A", b"a\0b")),
        ("GET", (b"X A", b"a")),
        ("GET", (b"X-A:", b"a")),
        ("GET", (b"X-A\r\nX-B", b"a")),
        ("GET", (b"X-A: a\r\nX-B", b"b")),
        ("GET", (b"X-A", b"a\r\n")),
        ("GET", (b"X-A", b"a\r\nContent-Length: 5\r\nX-B: b")),
        ("GET", (b"X-\xe9", b"a")),
        ("GET", (b"", b"a")),
        ("GET / HTTP/1.1\r\nX-A: a\r\n\r\nGET", (b"X-A", b"a")),
        ("GET / HTTP/1.1\r\nX-B: b", (b"X-A", b"a")),
        ("GE T", (b"X-A", b"a")),
        ("", (b"X-A", b"a")),
        ("GÉT", (b"X-A", b"a")),
    ],
)
def test_what_must_not_be_said_is_not_said(method: str, header: tuple[bytes, bytes]) -> None:
    async def talk(stage: Stage, http: httpx.AsyncClient) -> None:
        with pytest.raises(httpx.LocalProtocolError):
            await http.send(httpx.Request(method, stage.url, headers=[header]))
        assert (await http.get(stage.url)).content == b"ok"
        await come_true(lambda: stage.open_ones == 1)
        assert (stage.scraps, len(stage.heard)) == (b"", 1)

    meet(saying(OK), talk)


@pytest.mark.parametrize(
    ("told", "pieces"),
    [
        ("5", [b"four"]),
        ("5", []),
        ("5", [b"sixsix"]),
        ("5", [b"five!", b"more"]),
        ("0", [b"more"]),
        (str(len(LARGE)), [LARGE[:-1]]),
        (str(len(LARGE)), [LARGE, b"more"]),
        ("-5", [b""]),
        ("five", [b"five"]),
        ("5, 5", [b"five!"]),
    ],
)
def test_a_body_of_another_length_than_was_told_is_an_error_and_ends_the_connection(
    told: str, pieces: list[bytes]
) -> None:
    async def talk(stage: Stage, http: httpx.AsyncClient) -> None:
        with pytest.raises(httpx.LocalProtocolError):
            await http.post(stage.url, content=in_pieces(*pieces), headers={"Content-Length": told})
        assert (await http.get(stage.url)).content == b"ok"
        await come_true(lambda: stage.open_ones == 1)
        assert stage.lines == 2

    meet(saying(OK), talk)


def test_a_body_whose_length_nobody_knows_is_sent_in_chunks() -> None:
    async def talk(stage: Stage, http: httpx.AsyncClient) -> None:
        pieces = [b"a", b"", LARGE, b"", b"\r\n0\r\n\r\n"]
        whole = b"".join(pieces)
        for _ in range(2):
            await http.post(stage.url, content=in_pieces(*pieces))
        await http.post(stage.url, content=in_pieces())
        assert [call.body for call in stage.heard] == [whole, whole, b""]
        assert all(b"content-length" not in call.headers for call in stage.heard)
        assert stage.lines == 1

    meet(saying(OK), talk)


@pytest.mark.parametrize("pieces", [[LARGE], [LARGE[at : at + 10_000] for at in range(0, len(LARGE), 10_000)]])
def test_a_large_body_arrives_whole(pieces: list[bytes]) -> None:
    async def talk(stage: Stage, http: httpx.AsyncClient) -> None:
        length = {"Content-Length": str(len(LARGE))}
        assert (await http.post(stage.url, content=in_pieces(*pieces), headers=length)).content == b"ok"
        assert (await http.post(stage.url, content=LARGE)).content == b"ok"
        assert [call.body == LARGE for call in stage.heard] == [True, True]
        assert stage.lines == 1

    meet(saying(OK), talk)


@pytest.mark.parametrize(
    "body",
    [
        {"json": {"fiche": "é"}},
        {"data": {"username": "anna", "password": "h&sh"}},
        {"content": b"{}"},
        {
            "data": {"model": "scribe"},
            "files": {"file": ("call.mp3", b"\xff\xfb" * 100_000, "audio/mpeg")},
            "headers": {"Content-Type": "multipart/form-data; boundary=between"},
        },
        {},
    ],
)
def test_a_body_arrives_as_httpx_builds_it(body: dict[str, Any]) -> None:
    async def talk(stage: Stage, http: httpx.AsyncClient) -> None:
        await http.post(f"{stage.url}api?of=a%20b", **body)
        built = http.build_request("POST", f"{stage.url}api?of=a%20b", **body)
        [call] = stage.heard
        assert call.first == b"POST /api?of=a%20b HTTP/1.1"
        assert call.headers == {name.lower(): value for name, value in built.headers.raw}
        assert call.body == built.read()

    meet(saying(OK), talk)


def refusing(*, reads_on: bool) -> Play:
    """Answers when it has read the headers of a body that it does not want."""

    async def play(_: Stage, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 9\r\n\r\ntoo large")
        await writer.drain()
        if reads_on:
            writer.write_eof()
            while await reader.read(65_536):
                pass
        return False

    return play


@pytest.mark.parametrize("is_told", [True, False])
def test_a_server_that_refuses_a_body_and_listens_to_its_end_is_understood(is_told: bool) -> None:
    async def talk(stage: Stage, http: httpx.AsyncClient) -> None:
        for _ in range(2):
            content = LARGE if is_told else in_pieces(*[LARGE] * 3)
            answer = await http.post(stage.url, content=content)
            assert (answer.status_code, answer.text) == (413, "too large")
        assert stage.lines == 2

    meet(refusing(reads_on=True), talk)


@pytest.mark.parametrize("is_told", [True, False])
def test_a_server_that_refuses_a_body_and_hangs_up_ends_the_call(is_told: bool) -> None:
    async def talk(stage: Stage, http: httpx.AsyncClient) -> None:
        for _ in range(5):
            # The reset may overtake the answer.
            with suppress(httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError):
                answer = await http.post(stage.url, content=LARGE if is_told else in_pieces(*[LARGE] * 3))
                assert (answer.status_code, answer.text) == (413, "too large")
        assert stage.lines == 5

    meet(refusing(reads_on=False), talk)


def test_an_address_of_ipv6_is_called() -> None:
    async def talk(stage: Stage, http: httpx.AsyncClient) -> None:
        assert (await http.get(stage.url)).content == b"ok"
        assert stage.heard[0].headers[b"host"] == stage.url.removeprefix("http://").rstrip("/").encode()

    try:
        meet(saying(OK), talk, "::1")
    except OSError:
        pytest.skip("This machine has no IPv6")
