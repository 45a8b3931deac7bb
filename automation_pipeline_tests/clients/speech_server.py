"""An HTTP server that plays both the audio host and ElevenLabs, and the client for it."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.parser import BytesParser
from email.policy import HTTP
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

import pytest

from automation_pipeline.clients.elevenlabs import ElevenLabsSpeechToText
from automation_pipeline.core.errors import AutomationError
from automation_pipeline.transcription.models import Transcript
from automation_pipeline_tests.fakes.speech import no_rate_limit

BeforeCall = Callable[[], Awaitable[None]]

NOW = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)
KEY = "sk_s3cret0123"
AUDIO = "/rec/1.mp3"
SPEECH = "/v1/speech-to-text"
SOUND = b"ID3\x03" + bytes(1000)
PIECE = bytes(64 * 1024)
TRANSCRIPT = {
    "transcription_id": "tr_9Fz0",
    "language_code": "fra",
    "language_probability": 0.98,
    "text": "Bonjour madame (rire)",
    "words": [
        {
            "text": "Bonjour",
            "start": 0.12,
            "end": 0.58,
            "type": "word",
            "speaker_id": "speaker_0",
            "logprob": -0.03,
        },
        {"text": " ", "start": 0.58, "end": 0.6, "type": "spacing", "speaker_id": "speaker_0"},
        {"text": "madame", "start": 0.6, "end": 1.1, "type": "word", "speaker_id": "speaker_0"},
        {
            "text": "(rire)",
            "start": 3.1,
            "end": 3.6,
            "type": "audio_event",
            "speaker_id": "speaker_1",
        },
    ],
}


class Exchange(BaseHTTPRequestHandler):
    """One request. The page of its path writes the response."""

    protocol_version = "HTTP/1.1"
    speech_server: "SpeechServer"

    def do_GET(self) -> None:
        self.speech_server.fetched.append(Fetched(self.path, dict(self.headers)))
        self._answer()

    def do_POST(self) -> None:
        try:
            self.speech_server.uploads.append(Upload.read(self))
        except ConnectionError:
            self.close_connection = True
            return
        self._answer()

    def _answer(self) -> None:
        page = self.speech_server.pages.get(self.path.partition("?")[0], answer(404))
        with suppress(ConnectionError):
            page(self)

    def start(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  http.server's name
        pass


Page = Callable[[Exchange], None]


@dataclass(frozen=True)
class Fetched:
    path: str
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Upload:
    """A received form. Only the size of a large form is stored."""

    path: str
    key: str | None
    size: int
    fields: Mapping[str, str]
    file: tuple[str | None, str, bytes] | None

    @classmethod
    def read(cls, exchange: Exchange) -> "Upload":
        size = left = int(exchange.headers["Content-Length"])
        kept = b""
        while left:
            piece = exchange.rfile.read(min(left, len(PIECE)))
            if not piece:
                raise ConnectionAbortedError("The client went away in the middle of its form.")
            left -= len(piece)
            kept = (kept + piece) if size < len(PIECE) else b""
        about = (exchange.path, exchange.headers.get("xi-api-key"), size)
        if not kept:
            return cls(*about, {}, None)
        head = f"Content-Type: {exchange.headers['Content-Type']}\r\n\r\n".encode()
        parts = {
            part.get_param("name", header="content-disposition"): part
            for part in BytesParser(policy=HTTP).parsebytes(head + kept).iter_parts()
        }
        sent = parts.pop("file")
        file = (sent.get_filename(), sent.get_content_type(), sent.get_content())
        return cls(
            *about, {str(name): part.get_content().strip() for name, part in parts.items()}, file
        )


class SpeechServer:
    def __init__(self, url: str) -> None:
        self.url = url
        self.audio_url = url + AUDIO
        self.fetched: list[Fetched] = []
        self.uploads: list[Upload] = []
        self.closing = Event()
        self.pages: dict[str, Page] = {AUDIO: answer(200, SOUND), SPEECH: json_page(TRANSCRIPT)}

    def transcript(
        self, url: str | None = None, before_call: BeforeCall = no_rate_limit, **options: Any
    ) -> Transcript:
        async def transcribe() -> Transcript:
            speech = self.client(**options)
            try:
                return await speech.transcribe(
                    self.audio_url if url is None else url, before_call=before_call
                )
            finally:
                await speech.aclose()

        return asyncio.run(transcribe())

    def error(self, url: str | None = None, **options: Any) -> AutomationError:
        with pytest.raises(AutomationError) as caught:
            self.transcript(url, **options)
        return caught.value

    def client(self, key: str = KEY, **options: Any) -> ElevenLabsSpeechToText:
        """By default only this server is an allowed audio origin."""
        return ElevenLabsSpeechToText(
            key, self.url, now=lambda: NOW, **({"audio_origins": [self.url]} | options)
        )


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


@contextmanager
def running() -> Generator[SpeechServer]:
    handler = type("SpeechExchange", (Exchange,), {})
    with _Server(("127.0.0.1", 0), handler) as server:
        handler.speech_server = speech_server = SpeechServer(
            f"http://127.0.0.1:{server.server_port}"
        )
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield speech_server
        finally:
            speech_server.closing.set()
            server.shutdown()
            thread.join()


def answer(status: int, body: bytes = b"", **headers: str) -> Page:
    """Headers are keyword arguments with underscores for dashes."""

    def page(exchange: Exchange) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        exchange.start(status, {"Content-Length": str(len(body))} | named)
        exchange.wfile.write(body)

    return page


def json_page(document: object, status: int = 200, **headers: str) -> Page:
    return answer(status, json.dumps(document).encode(), **headers)


def redirect(to: str, status: int = 302) -> Page:
    return answer(status, b"moved", Location=to)


def streaming(pieces: int, *, announced: bool = True) -> Page:
    """Sends `pieces` of 64 KiB. If not `announced`, the body ends with the connection."""

    def page(exchange: Exchange) -> None:
        length = (
            {"Content-Length": str(pieces * len(PIECE))} if announced else {"Connection": "close"}
        )
        exchange.start(200, length)
        for _ in range(pieces):
            exchange.wfile.write(PIECE)

    return page


def cut_short(exchange: Exchange) -> None:
    exchange.start(200, {"Content-Length": "5000"})
    exchange.wfile.write(SOUND)
    exchange.close_connection = True


def drop(exchange: Exchange) -> None:
    exchange.close_connection = True


def trickle(exchange: Exchange) -> None:
    """Sends single bytes and never completes the body."""
    exchange.start(200, {"Content-Length": "1000000"})
    while not exchange.speech_server.closing.wait(0.02):
        exchange.wfile.write(b"x")


def never_answer(exchange: Exchange) -> None:
    exchange.speech_server.closing.wait(30)
    exchange.close_connection = True
