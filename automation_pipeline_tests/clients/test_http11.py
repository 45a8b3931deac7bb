"""Answers of HTTP/1.1 on real sockets: however they are framed and cut, and what is no answer."""

import asyncio
import gzip
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.clients import http11
from automation_pipeline.clients.http11 import Answer
from automation_pipeline_tests.clients.stage import (
    OK,
    Stage,
    endlessly,
    heard,
    meet,
    saying,
)
from automation_pipeline_tests.waiting import come_true

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
LARGE = b"0123456789abcdef" * 524_288


class Told(NamedTuple):
    status: int
    reason: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes


@st.composite
def answers(draw: st.DrawFn) -> tuple[bytes, Told]:
    """The bytes of an answer, and what it tells."""
    values = st.sampled_from([b"", b"a", b"a=b; Path=/", b"two  spaces", b"\xc3\xa9", b"gzip"])
    names = st.sampled_from([b"Set-Cookie", b"X-A", b"x-a", b"ETag"])
    headers = draw(st.lists(st.tuples(names, values), max_size=5))
    pieces = draw(st.lists(st.binary(min_size=1, max_size=40), max_size=4))
    reason = draw(st.sampled_from([b"OK", b"", b"As you like it"]))
    framing = draw(st.sampled_from(["length", "chunked", "hang-up", "no content", "not modified"]))
    status, body, framed = 200, b"".join(pieces), b"".join(pieces)
    match framing:
        case "length":
            headers.insert(draw(st.integers(0, len(headers))), (b"Content-Length", b"%d" % len(body)))
        case "chunked":
            headers.insert(draw(st.integers(0, len(headers))), (b"Transfer-Encoding", b"chunked"))
            framed = b"".join(b"%x%b\r\n%b\r\n" % (len(piece), draw(EXTENSIONS), piece) for piece in pieces)
            framed += b"0%b\r\n%b\r\n" % (draw(EXTENSIONS), draw(TRAILERS))
        case "no content":
            status, body, framed = 204, b"", b""
        case "not modified":
            headers.append((b"Content-Length", b"1234"))
            status, body, framed = 304, b"", b""
        case _:
            pass
    lines = [b"%b:%b%b%b\r\n" % (name, draw(BLANKS), value, draw(BLANKS)) for name, value in headers]
    said = b"%bHTTP/1.1 %d %b\r\n%b\r\n%b" % (draw(BEFORE), status, reason, b"".join(lines), framed)
    return said, Told(status, reason, headers, body)


BLANKS = st.sampled_from([b"", b" ", b"   "])
EXTENSIONS = st.sampled_from([b"", b";a", b";a=b;c=d", b';a="b c"'])
TRAILERS = st.sampled_from([b"", b"X-Sum: 1\r\n", b"X-Sum:\r\nSet-Cookie: never=1\r\n"])
BEFORE = st.sampled_from(
    [b"", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nX-A:\r\n\r\n" * 2]
)


def cut(said: bytes, places: Sequence[int]) -> list[bytes]:
    edges = [0, *sorted({place % len(said) for place in places} - {0}), len(said)]
    return [said[begin:end] for begin, end in pairwise(edges)]


def told(pieces: Sequence[bytes]) -> Told:
    answer = Answer(has_body=True)
    for piece in pieces:
        answer.hear(piece)
    if not answer.is_over:
        answer.end()
    return Told(answer.status, answer.reason, answer.headers, b"".join(answer.pieces))


@given(answers(), st.one_of(st.just(range(2_000)), st.lists(st.integers(0, 2_000), max_size=6)))
def test_an_answer_is_the_same_however_its_bytes_are_cut(answer: tuple[bytes, Told], places: Sequence[int]) -> None:
    said, meant = answer
    assert told(cut(said, places)) == meant


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (OK, b"ok"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + OK, b"ok"),
        (CHUNKED + b"3;a=b\r\nabc\r\n2\r\nde\r\n0\r\nX-Sum: 5\r\n\r\n", b"abcde"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", b""),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b""),
    ],
)
def test_a_connection_whose_answer_is_whole_is_used_again(answer: bytes, body: bytes) -> None:
    async def talk(stage: Stage, http: httpx.AsyncClient) -> None:
        for _ in range(3):
            assert (await http.get(stage.url)).content == body
        assert stage.lines == 1

    meet(saying(answer), talk)


def test_an_answer_is_told_as_it_was_given() -> None:
    async def talk(stage: Stage, http: httpx.AsyncClient) -> None:
        answer = await http.get(stage.url)
        assert (answer.status_code, answer.reason_phrase, answer.http_version) == (299, "Odd Enough", "HTTP/1.1")
        assert answer.headers.raw == [
            (b"Set-Cookie", b"a=1"), (b"X-Empty", b""), (b"Set-Cookie", b"b=2"), (b"Content-Length", b"0"),
        ]  # fmt: skip

    said = (
        b"HTTP/1.1 299 Odd Enough\r\nSet-Cookie:\t a=1 \t\r\nX-Empty:\r\nSet-Cookie: b=2\r\nContent-Length: 0\r\n\r\n"
    )
    meet(saying(said), talk)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        OK + OK,
        OK + b"and so on",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok and so on",
    ],
)
def test_a_connection_that_is_to_end_or_says_too_much_is_not_used_again(answer: bytes) -> None:
    async def talk(stage: Stage, http: httpx.AsyncClient) -> None:
        for _ in range(2):
            assert (await http.get(stage.url)).content == b"ok"
        assert stage.lines == 2

    meet(saying(answer), talk)


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
def test_a_body_may_end_with_the_connection(version: bytes) -> None:
    async def talk(stage: Stage, http: httpx.AsyncClient) -> None:
        for _ in range(2):
            assert (await http.get(stage.url)).content == LARGE
        assert stage.lines == 2

    meet(saying(b"HTTP/%b 200 OK\r\n\r\n" % version + LARGE, hangs_up=True), talk)


@pytest.mark.parametrize("framing", [b"Content-Length: 5", b"Transfer-Encoding: chunked", b"X-A: b"])
def test_the_answer_to_head_has_no_body_and_its_connection_is_not_used_again(framing: bytes) -> None:
    async def talk(stage: Stage, http: httpx.AsyncClient) -> None:
        for _ in range(2):
            answer = await http.head(stage.url)
            assert (answer.status_code, answer.content) == (200, b"")
        assert stage.lines == 2

    meet(saying(b"HTTP/1.1 200 OK\r\n%b\r\n\r\n" % framing), talk)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfour",
        CHUNKED + b"5",
        CHUNKED + b"5\r\nfour",
        CHUNKED + b"4\r\nfour\r\n",
        CHUNKED + b"4\r\nfour\r\n0\r\n",
        CHUNKED + b"4\r\nfour\r\n0\r\nX-Sum: 4\r\n",
    ],
)
def test_an_answer_that_is_cut_short_is_an_error(answer: bytes) -> None:
    async def talk(stage: Stage, http: httpx.AsyncClient) -> None:
        for _ in range(2):
            with pytest.raises(httpx.RemoteProtocolError):
                await http.get(stage.url)
        assert stage.lines == 2

    meet(saying(answer, hangs_up=True), talk)


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\x15\x03\x01\x00\x02\x02\x46",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno header\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-A: \x00\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: five\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\t\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\n",
        CHUNKED + b"five\r\n",
        CHUNKED + b"2\r\nokay\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n" + OK,
    ],
)
def test_what_is_no_answer_is_an_error(answer: bytes) -> None:
    async def talk(stage: Stage, http: httpx.AsyncClient) -> None:
        for _ in range(2):
            with pytest.raises(httpx.RemoteProtocolError):
                await http.get(stage.url)
        assert stage.lines == 2

    meet(saying(answer), talk)


@pytest.mark.parametrize(
    ("beginning", "again"),
    [
        (b"HTTP/1.1 200 ", b"O" * 10_000),
        (b"HTTP/1.1 200 OK\r\n", b"X" * 10_000),
        (b"HTTP/1.1 200 OK\r\nX-A: ", b"a" * 10_000),
        (b"HTTP/1.1 200 OK\r\nX-A:", b" " * 10_000),
        (b"HTTP/1.1 200 OK\r\n", b"X-A: a\r\n" * 1_000),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1_000),
        (b"", b"\r\n" * 1_000),
        (CHUNKED + b"5;a=", b"a" * 10_000),
        (CHUNKED + b"2\r\nok\r\n", b"0" * 10_000),
        (CHUNKED + b"0\r\nX-A: ", b"a" * 10_000),
        (CHUNKED + b"2\r\nok\r\n0\r\n", b"X-A: a\r\n" * 1_000),
    ],
)
def test_what_has_no_end_is_given_up(beginning: bytes, again: bytes) -> None:
    async def talk(stage: Stage, http: httpx.AsyncClient) -> None:
        with pytest.raises(httpx.RemoteProtocolError):
            await http.get(stage.url)
        await come_true(lambda: stage.open_ones == 0)

    meet(endlessly(beginning, again), talk)


def test_much_that_comes_after_a_whole_answer_spoils_only_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http11, "MOST_HEAD", 100)

    async def play(stage: Stage, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        stage.heard.append(await heard(reader))
        writer.write(CHUNKED + b"2\r\nok\r\n")
        await has_head.wait()
        writer.write(b"0\r\n\r\n" + 10 * OK)
        return True

    async def talk(stage: Stage, http: httpx.AsyncClient) -> None:
        for _ in range(2):
            has_head.clear()
            async with http.stream("GET", stage.url) as answer:
                has_head.set()
                assert await answer.aread() == b"ok"
        assert stage.lines == 2

    has_head = asyncio.Event()
    meet(play, talk)


def test_a_packed_answer_is_unpacked() -> None:
    packed = gzip.compress(LARGE)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)

    async def talk(stage: Stage, http: httpx.AsyncClient) -> None:
        assert (await http.get(stage.url)).content == LARGE
        assert b"gzip" in stage.heard[0].headers[b"accept-encoding"]

    meet(saying(head + packed), talk)
