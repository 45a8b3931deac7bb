"""A call of HTTP/1.1 over a wire, and the next one over the same: what is said is checked here, what is answered is
read by httptools' parser."""

import re
import ssl
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator
from typing import NamedTuple, TypedDict, cast

import httpx
from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from automation_pipeline.clients.wires import Wire, open_wire

# Of an answer without a byte of its body: beyond it, it is taken for one that has no end.
MOST_HEAD = 100_000
# Small pieces of what is sent leave together.
AT_LEAST_A_WRITE = 65_536

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_REQUEST = re.compile(_TOKEN + rb" [^\0-\x20\x7f]+ HTTP/1\.1\r\n(?:" + _TOKEN + rb": [^\0\r\n\v\f]*\r\n)*")


class Patience(TypedDict, total=False):
    """Seconds, as httpx hands them on; None is for ever."""

    connect: float | None
    read: float | None
    write: float | None
    pool: float | None


def patience_of(request: httpx.Request) -> Patience:
    return cast("Patience", request.extensions.get("timeout", {}))


class Place(NamedTuple):
    """Where a connection goes to. `name` is what the certificate there must be for."""

    host: str
    port: int
    name: str
    is_secret: bool


class Connection:
    """One call after the other. Whoever has got an answer reads its body to the end, or closes the connection."""

    def __init__(self, place: Place, wire: Wire) -> None:
        self.place = place
        self._wire = wire
        self._answer: Answer | None = None
        self._is_spoilt = False

    @classmethod
    async def open(cls, place: Place, certified: ssl.SSLContext | None, seconds: float | None) -> "Connection":
        return cls(place, await open_wire(place.host, place.port, seconds, secret=certified, name=place.name))

    @property
    def can_be_used(self) -> bool:
        """Another call can be made: nothing is left of the last one, and the other side has neither spoken nor gone."""
        is_free = self._answer is None or self._answer.is_over
        return is_free and not (self._is_spoilt or self._wire.is_readable)

    async def call(self, request: httpx.Request) -> "Answer":
        """When its head is there; the rest is read by `body`."""
        self._answer = answer = Answer(has_body=request.method != "HEAD")
        patience = patience_of(request)
        try:
            await self._say(request, patience.get("write"))
        except httpx.WriteError:  # who has heard enough may have answered all the same
            self._is_spoilt = True
        silent = 0
        while not answer.has_head:
            data = await self._wire.read(patience.get("read"))
            silent += len(data)
            self._hear(answer, data)
            if silent > MOST_HEAD and not answer.has_head:
                raise httpx.RemoteProtocolError("The answer's headers have no end")
        return answer

    async def body(self, seconds: float | None) -> AsyncIterator[bytes]:
        answer, silent = self._answer, 0
        while answer is not None:
            while answer.pieces:
                silent = 0
                yield answer.pieces.popleft()
            if answer.is_over:
                return
            data = await self._wire.read(seconds)
            silent += len(data)
            self._hear(answer, data)
            if silent > MOST_HEAD and not (answer.pieces or answer.is_over):
                raise httpx.RemoteProtocolError("Something without an end stands in the answer's body")

    def close(self) -> None:
        self._is_spoilt = True
        self._wire.close()

    async def _say(self, request: httpx.Request, seconds: float | None) -> None:
        saying = bytearray(_head(request))
        async for piece in _framed(request):
            saying += piece
            if len(saying) >= AT_LEAST_A_WRITE:
                await self._wire.write(bytes(saying), seconds)
                saying.clear()
        if saying:
            await self._wire.write(bytes(saying), seconds)

    def _hear(self, answer: "Answer", data: bytes) -> None:
        was_spoilt, self._is_spoilt = self._is_spoilt, True  # as it stays unless all of it is understood
        if data:
            answer.hear(data)
        else:
            answer.end()
        self._is_spoilt = was_spoilt or not (data and answer.is_kept)


def _head(request: httpx.Request) -> bytes:
    headers = request.headers.raw
    first = b"%b %b HTTP/1.1\r\n" % (request.method.encode(), request.url.raw_path)
    head = first + b"".join([b"%b: %b\r\n" % header for header in headers])
    # Lines are counted: a value that holds some would make well-formed ones.
    if head.count(b"\n") != 1 + len(headers) or _REQUEST.fullmatch(head) is None:
        raise httpx.LocalProtocolError("The method, the address or a header holds what cannot be sent")
    return head + b"\r\n"


async def _framed(request: httpx.Request) -> AsyncIterator[bytes]:
    """The body as it is sent: as it is where its length has been told, in chunks where it has not."""
    told = request.headers.get("Content-Length")
    if told is not None and not (told.isascii() and told.isdecimal()):
        raise httpx.LocalProtocolError("The Content-Length is no number")
    left = int(told or 0)
    is_chunked = told is None and "Transfer-Encoding" in request.headers
    async for piece in cast("AsyncIterable[bytes]", request.stream):
        left -= 0 if is_chunked else len(piece)
        if left < 0:
            break
        if piece:
            yield b"%x\r\n%b\r\n" % (len(piece), piece) if is_chunked else piece
    if left:
        raise httpx.LocalProtocolError("The body is not as long as its Content-Length says")
    if is_chunked:
        yield b"0\r\n\r\n"


class Answer:
    """What httptools' parser tells of one answer. `is_kept`: the connection may serve another call after it."""

    def __init__(self, *, has_body: bool) -> None:
        self.status = 0
        self.version = self.reason = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.pieces: deque[bytes] = deque()
        self.has_head = self.is_over = self._ends_with_the_wire = False
        self.is_kept = True
        self._has_body = has_body
        self._is_understood = True
        self._parser = HttpResponseParser(self)
        # What old servers do: bare line ends, and sizes of chunks with spaces behind them.
        self._parser.set_dangerous_leniencies(lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True)

    def hear(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
            if self.is_over:
                del self._parser  # it knows us as we know it: neither would be forgotten before the collector comes
        except HttpParserUpgrade:
            raise httpx.RemoteProtocolError("Another protocol was answered") from None
        except HttpParserError as error:
            # What comes after an answer that is whole is nobody's: it only spoils the connection.
            self.is_kept = False
            if not self.is_over:
                raise httpx.RemoteProtocolError(str(error)) from error
        if not self._is_understood:
            raise httpx.RemoteProtocolError("The answer comes in a transfer encoding other than chunked")

    def end(self) -> None:
        """Nothing comes any more."""
        if not self.has_head:
            raise httpx.RemoteProtocolError("The server hung up without an answer")
        if not (self.is_over or self._ends_with_the_wire):
            raise httpx.RemoteProtocolError("The server hung up in the middle of its answer")
        self.is_over = True

    # What httptools calls.

    def on_message_begin(self) -> None:
        if self.is_over:
            self.is_kept = False

    def on_status(self, reason: bytes) -> None:
        if not self.has_head:
            self.reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.has_head:  # after it they are trailers
            self.headers.append((name, value.rstrip(b" \t")))
            if name.lower() == b"transfer-encoding" and value.rstrip(b" ").lower() != b"chunked":
                self._is_understood = False

    def on_headers_complete(self) -> None:
        if self.has_head:
            return
        self.status = self._parser.get_status_code()
        if self.status < 200:  # more to come
            self.reason, self.headers = b"", []
            return
        self.has_head = True
        self.version = self._parser.get_http_version().encode()
        names = {name.lower() for name, _ in self.headers}
        self._ends_with_the_wire = not names & {b"content-length", b"transfer-encoding"}
        if not self._has_body:
            self.is_over, self.is_kept = True, False

    def on_body(self, piece: bytes) -> None:
        if not self.is_over:
            self.pieces.append(piece)

    def on_message_complete(self) -> None:
        if not self.has_head or self.is_over:
            return
        self.is_over = True
        self.is_kept = self._parser.should_keep_alive()
