"""A reader of multipart/form-data that parses the body while it arrives (starlette's reader needs another package).
It keeps only the head of each part, and counts and hashes the rest, so that parts may be large.
"""

import hashlib
import re
from collections.abc import AsyncIterable
from dataclasses import dataclass, field
from typing import Protocol

HEAD_BYTES = 64 * 1024
MAX_HEADER_BYTES = 8 * 1024
MAX_PARTS = 64
MAX_BOUNDARY = 70  # RFC 2046

_BOUNDARY = re.compile(
    r'^multipart/form-data\s*;(?:.*;)?\s*boundary=(?:"([^"]+)"|([^\s;"]+))', re.IGNORECASE
)
_PARAMETER = re.compile(r';\s*([\w*]+)=(?:"((?:\\.|[^"\\])*)"|([^\s;]*))')


class MalformedBodyError(Exception):
    """The body is not a valid multipart form. The message is one sentence."""


class _Digest(Protocol):
    def update(self, data: bytes, /) -> None: ...
    def hexdigest(self) -> str: ...


@dataclass
class Part:
    """`is_file`: the part has a file name."""

    name: str
    is_file: bool
    head: bytes = b""
    size: int = 0
    _digest: _Digest = field(default_factory=hashlib.sha256)

    def take(self, data: bytes) -> None:
        self.head += data[: HEAD_BYTES - len(self.head)]
        self.size += len(data)
        self._digest.update(data)

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    @property
    def text(self) -> str:
        return self.head.decode("utf-8", "replace")


async def read_form(content_type: str, chunks: AsyncIterable[bytes]) -> dict[str, Part]:
    """Return the parts by name; of parts with the same name, the last one. The whole body is read even if it is
    malformed, so that the caller receives the answer. Raises MalformedBodyError."""
    error: MalformedBodyError | None = None
    reader: _Reader | None = None
    try:
        reader = _Reader(_boundary(content_type))
    except MalformedBodyError as wrong:
        error = wrong
    async for chunk in chunks:
        if reader is None or error:
            continue
        try:
            reader.feed(chunk)
        except MalformedBodyError as wrong:
            error = wrong
    if error:
        raise error
    assert reader  # noqa: S101 - otherwise there is an error
    return reader.finished()


def _boundary(content_type: str) -> bytes:
    match = _BOUNDARY.match(content_type)
    if not match:
        raise MalformedBodyError("The content type is not multipart/form-data with a boundary.")
    boundary = (match[1] or match[2]).encode("latin-1")
    if len(boundary) > MAX_BOUNDARY:
        raise MalformedBodyError(f"The boundary is longer than {MAX_BOUNDARY} characters.")
    return boundary


class _Reader:
    """A parser that is fed chunk by chunk. A step returns whether it made progress; if not, it needs more bytes."""

    def __init__(self, boundary: bytes) -> None:
        self._delimiter = b"\r\n--" + boundary
        self._waiting = b"\r\n"  # the first delimiter has no line break before it
        self._step = self._preamble
        self._parts: list[Part] = []

    def feed(self, chunk: bytes) -> None:
        self._waiting += chunk
        while self._step():
            pass

    def finished(self) -> dict[str, Part]:
        if self._step != self._epilogue:
            raise MalformedBodyError("The form ends before its closing boundary.")
        return {part.name: part for part in self._parts}

    def _preamble(self) -> bool:
        return self._until_delimiter() is not None

    def _content(self) -> bool:
        content = self._until_delimiter()
        if content is not None:
            self._parts[-1].take(content)
            return True
        sure = len(self._waiting) - len(self._delimiter)
        if sure > 0:
            self._parts[-1].take(self._waiting[:sure])
            self._waiting = self._waiting[sure:]
        return False

    def _until_delimiter(self) -> bytes | None:
        before, found, after = self._waiting.partition(self._delimiter)
        if not found:
            if self._step == self._preamble:
                self._waiting = self._waiting[-len(self._delimiter) :]
            return None
        self._waiting, self._step = after, self._after_delimiter
        return before

    def _after_delimiter(self) -> bool:
        if self._waiting.startswith(b"--"):
            self._step = self._epilogue
            return True
        if len(self._waiting) < 2:
            return False
        if not self._waiting.startswith(b"\r\n"):
            raise MalformedBodyError("A boundary is not followed by a line break.")
        self._waiting, self._step = self._waiting[2:], self._headers
        return True

    def _headers(self) -> bool:
        lines, found, after = self._waiting.partition(b"\r\n\r\n")
        if len(lines) > MAX_HEADER_BYTES:
            raise MalformedBodyError(
                f"The headers of a part are longer than {MAX_HEADER_BYTES} bytes."
            )
        if not found:
            return False
        if len(self._parts) == MAX_PARTS:
            raise MalformedBodyError(f"The form has more than {MAX_PARTS} parts.")
        self._parts.append(_part(lines.decode("utf-8", "replace")))
        self._waiting, self._step = after, self._content
        return True

    def _epilogue(self) -> bool:
        self._waiting = b""
        return False


def _part(headers: str) -> Part:
    for line in headers.split("\r\n"):
        header, _, value = line.partition(":")
        if header.strip().lower() == "content-disposition":
            given = {
                name.lower(): quoted or plain for name, quoted, plain in _PARAMETER.findall(value)
            }
            if value.strip().lower().startswith("form-data") and given.get("name"):
                return Part(given["name"], is_file="filename" in given or "filename*" in given)
    raise MalformedBodyError("A part has no name.")
