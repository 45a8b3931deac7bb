"""The upstream of every competitor: CRM, audio, speech-to-text and language model in one light
process.

python benchmarks/upstream.py [--port 0] [--fiches 1000] [--latency 0.05] [--speech-per-minute 0]

It prints its URL. `GET /calls` returns the recorded calls, `POST /reset` removes them; `GET /steps`
and `GET /sizes` describe the answers.
"""

import argparse
import asyncio
import json
import re
import signal
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import httptools
import uvloop
from payloads import FIRST_ID, Payloads, recordings_of

DETAILS, AUDIO, SPEECH, MODEL = (
    b"/api/fiches/by-id/",
    b"/recordings/",
    b"/v1/speech-to-text",
    b"/v1/chat/completions",
)
SALES = b"/api/fiches/sales-with-calls"
TITLE = re.compile(rb"TIT2.{7}([0-9]{11})", re.DOTALL)
ASKED = re.compile(rb"Appel : ([0-9]{9})[0-9]{2} ")
STEP = re.compile("=== ÉTAPE ([0-9]+)/|=== \\\\u00c9TAPE ([0-9]+)/".encode())
OK, REFUSED, UNKNOWN = b"200 OK", b"429 Too Many Requests", b"404 Not Found"
MINUTE = 60.0

Answer = tuple[bytes, bytes, bytes]  # status, type, body


@dataclass
class Seen:
    """The calls since the last reset. An item is a fiche, a recording, or a fiche with a step."""

    calls: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    items: dict[str, Counter[bytes]] = field(default_factory=dict)
    first: dict[str, float] = field(default_factory=dict)
    last: dict[str, float] = field(default_factory=dict)
    at_once: int = 0
    peak: int = 0

    def note(self, route: str, item: bytes) -> None:
        self.calls[route] += 1
        self.items.setdefault(route, Counter())[item] += 1
        self.first.setdefault(route, time.time())

    def document(self) -> dict[str, object]:
        twice = {
            route: sum(times > 1 for times in items.values()) for route, items in self.items.items()
        }
        kept = {"first": self.first, "last": self.last, "peak": self.peak, "refused": self.refused}
        return {
            "calls": self.calls,
            "items": {r: len(i) for r, i in self.items.items()},
            "twice": twice,
            **kept,
        }


class Upstream:
    def __init__(self, origin: str, *, fiches: int, latency: float, speech_per_minute: int) -> None:
        payloads = Payloads(origin)
        self.latency = latency
        self.seen = Seen()
        self._fiches = fiches
        self._details, self._audio = payloads.details, payloads.audio
        self._speech, self._judged = payloads.speech, payloads.judged
        self._sales, self._steps = payloads.sales_list(fiches), payloads.steps()
        self._sizes = json.dumps(payloads.sizes()).encode()
        self._per_minute = speech_per_minute
        self._minute: deque[float] = deque()

    def answer(self, path: bytes, body: bytes) -> tuple[str, Answer]:
        """The name of the route (empty for an unknown path) and the answer."""
        if path.startswith(DETAILS):
            return "details", self._detail(path[len(DETAILS) :])
        if path.startswith(AUDIO):
            return "audio", self._recording(path[len(AUDIO) :].partition(b"/")[0])
        if path == SPEECH:
            return "speech", self._transcript(body)
        if path == MODEL:
            return "model", self._judgement(body)
        if path == SALES:
            self.seen.note("sales", b"")
            return "sales", _json(self._sales)
        return "", self._control(path)

    def _control(self, path: bytes) -> Answer:
        if path == b"/reset":
            at_once = self.seen.at_once
            self.seen = Seen(at_once=at_once)
            self._minute.clear()
        known = {b"/reset": b"{}", b"/steps": self._steps, b"/sizes": self._sizes}
        if path == b"/calls":
            return _json(json.dumps(self.seen.document()).encode())
        return _json(known[path]) if path in known else (UNKNOWN, b"application/json", b"{}")

    def _detail(self, fiche_id: bytes) -> Answer:
        self.seen.note("details", fiche_id)
        number = int(fiche_id) if fiche_id.isdigit() else 0
        if not FIRST_ID <= number < FIRST_ID + self._fiches:
            return UNKNOWN, b"application/json", b"{}"
        return _json(self._details[recordings_of(number)].with_name(fiche_id))

    def _recording(self, call_id: bytes) -> Answer:
        self.seen.note("audio", call_id)
        return OK, b"audio/mpeg", self._audio[int(call_id[-2:])].with_name(call_id[:-2])

    def _transcript(self, body: bytes) -> Answer:
        title = TITLE.search(body)
        if title is None:
            return UNKNOWN, b"application/json", b"{}"
        if self._is_over():
            self.seen.refused["speech"] += 1
            return REFUSED, b"application/json", b'{"detail":{"status":"rate_limit_exceeded"}}'
        self.seen.note("speech", title[1])
        return _json(self._speech[int(title[1][-2:])].with_name(b"tr_" + title[1]))

    def _judgement(self, body: bytes) -> Answer:
        fiche, step = ASKED.search(body), STEP.search(body)
        if fiche is None or step is None:
            return UNKNOWN, b"application/json", b"{}"
        position = step[1] or step[2]
        self.seen.note("model", fiche[1] + b"/" + position)
        return _json(self._judged[recordings_of(int(fiche[1])), int(position)])

    def _is_over(self) -> bool:
        """The number of calls in any period of a minute, as providers count."""
        if not self._per_minute:
            return False
        now = time.monotonic()
        while self._minute and now - self._minute[0] >= MINUTE:
            self._minute.popleft()
        if len(self._minute) >= self._per_minute:
            return True
        self._minute.append(now)
        return False


class Connection(asyncio.Protocol):
    """Every call takes exactly the latency, from its last byte to the first byte of the answer."""

    def __init__(self, upstream: Upstream, later: Callable[..., object]) -> None:
        self._upstream = upstream
        self._later = later
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._body: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own is no subclass

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.close()

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        path = self._url.partition(b"?")[0]
        route, answer = self._upstream.answer(path, b"".join(self._body))
        self._url, self._body = b"", []
        is_kept = self._parser.should_keep_alive()
        if not route:
            self._send(answer, is_kept)
            return
        seen = self._upstream.seen
        seen.at_once += 1
        seen.peak = max(seen.peak, seen.at_once)
        self._later(self._upstream.latency, self._end, route, answer, is_kept)

    def _end(self, route: str, answer: Answer, is_kept: bool) -> None:
        self._upstream.seen.at_once -= 1
        self._upstream.seen.last[route] = time.time()
        self._send(answer, is_kept)

    def _send(self, answer: Answer, is_kept: bool) -> None:
        if self._transport.is_closing():
            return
        status, kind, body = answer
        more = b"" if is_kept else b"Connection: close\r\n"
        length = str(len(body)).encode()
        head = (
            b"HTTP/1.1 ",
            status,
            b"\r\nContent-Type: ",
            kind,
            b"\r\nContent-Length: ",
            length,
            b"\r\n",
            more,
        )
        self._transport.writelines((*head, b"\r\n", body))
        if not is_kept:
            self._transport.close()


def _json(body: bytes) -> Answer:
    return OK, b"application/json", body


async def serve(options: argparse.Namespace) -> None:
    loop = asyncio.get_running_loop()
    servers: list[Upstream] = []
    server = await loop.create_server(
        lambda: Connection(servers[0], loop.call_later), "127.0.0.1", options.port, backlog=4096
    )
    host, port = server.sockets[0].getsockname()[:2]
    address = f"http://{host}:{port}"
    cap = options.speech_per_minute
    servers.append(
        Upstream(address, fiches=options.fiches, latency=options.latency, speech_per_minute=cap)
    )
    ended = asyncio.Event()
    for wanted in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(wanted, ended.set)
    print(f"upstream listening on {address}", flush=True)
    await ended.wait()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--fiches", type=int, default=1000)
    parser.add_argument("--latency", type=float, default=0.05)
    parser.add_argument(
        "--speech-per-minute", type=int, default=0, help="above it, 429 (0: no cap)"
    )
    return parser.parse_args()


if __name__ == "__main__":
    uvloop.run(serve(parse()))
