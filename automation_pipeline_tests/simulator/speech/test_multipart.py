"""Forms are parsed from pieces of any size, and malformed bodies are refused in one sentence."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterable

import httpx
import pytest

from automation_pipeline.simulator.speech.multipart import (
    HEAD_BYTES,
    MalformedBodyError,
    Part,
    read_form,
)
from automation_pipeline_tests.cases import every_case

TYPE = "multipart/form-data; boundary=line"
OPENING = b'--line\r\nContent-Disposition: form-data; name="a"\r\n\r\n'


def read(chunks: Iterable[bytes], content_type: str = TYPE) -> dict[str, Part]:
    async def arriving() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    return asyncio.run(read_form(content_type, arriving()))


def from_httpx(content: bytes) -> tuple[bytes, str]:
    files = {"file": ("audio.mp3", content, "audio/mpeg")}
    request = httpx.Request(
        "POST", "http://x", data={"model_id": "scribe_v1", "empty": ""}, files=files
    )
    return request.read(), request.headers["content-type"]


@every_case("size", [1, 2, 3, 7, 64, 10_000])
@every_case("content", [b"", b"\r\n", b"\r\n--", b"sound\r\n--lin\r\n-", bytes(range(256)) * 3])
def test_a_form_is_parsed_from_pieces_of_any_size(size: int, content: bytes) -> None:
    body, content_type = from_httpx(content)
    form = read((body[at : at + size] for at in range(0, len(body), size)), content_type)
    assert {name: (part.is_file, part.head) for name, part in form.items()} == {
        "model_id": (False, b"scribe_v1"),
        "empty": (False, b""),
        "file": (True, content),
    }


def test_only_the_head_of_a_big_file_is_kept_and_the_rest_is_counted_and_hashed() -> None:
    piece = bytes(range(256)) * 256
    file = b'--line\r\nContent-Disposition: form-data; name="file"; filename="a;b.mp3"\r\n\r\n'
    part = read([file, *[piece] * 100, b"\r\n--line--\r\n"])["file"]
    assert (part.size, part.head) == (100 * len(piece), piece[:HEAD_BYTES])
    assert part.digest == hashlib.sha256(piece * 100).hexdigest()


def test_a_preamble_and_an_epilogue_are_skipped_and_a_name_may_be_bare() -> None:
    bare = (
        b"before\r\n--line\r\ncontent-disposition: form-data; name=a\r\n\r\nx\r\n--line--\r\nafter"
    )
    assert read([bare])["a"].text == "x"


@every_case(
    ("body", "content_type", "message"),
    [
        (b"{}", "application/json", "not multipart/form-data with a boundary"),
        (b"", "multipart/form-data", "not multipart/form-data with a boundary"),
        (b"", f"multipart/form-data; boundary={'x' * 71}", "longer than 70"),
        (b"", TYPE, "before its closing boundary"),
        (b"noise", TYPE, "before its closing boundary"),
        (OPENING + b"x", TYPE, "before its closing boundary"),
        (OPENING + b"x\r\n--line", TYPE, "before its closing boundary"),
        (OPENING + b"x\r\n--lineage", TYPE, "not followed by a line break"),
        (b"--line\r\n\r\n\r\nx\r\n--line--", TYPE, "has no name"),
        (
            b"--line\r\nContent-Disposition: form-data\r\n\r\nx\r\n--line--",
            TYPE,
            "has no name",
        ),
        (b"--line\r\nX: " + b"y" * 9000 + b"\r\n\r\n", TYPE, "longer than 8192"),
        ((OPENING + b"x\r\n") * 65 + b"--line--", TYPE, "more than 64 parts"),
    ],
)
def test_a_malformed_form_is_refused_after_it_was_read(
    body: bytes, content_type: str, message: str
) -> None:
    chunks = iter(
        [body, b"more", b"and more"] if message != "before its closing boundary" else [body]
    )
    with pytest.raises(MalformedBodyError, match=message):
        read(chunks, content_type)
    assert list(chunks) == []
