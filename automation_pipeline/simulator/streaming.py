"""Answers that take their time or are too big to hold: zero padding made as it is sent, and bodies
that trickle."""

import asyncio
import math

from starlette.responses import Response
from starlette.types import Send

CHUNK = bytes(64 * 1024)
SECONDS_BETWEEN_PIECES = 0.1


async def send_stretched(
    response: Response, send: Send, *, pad_bytes: int, trickle_seconds: float
) -> None:
    """The body followed by that many zeros, evenly over that time; the declared length is the whole
    of it."""
    body = bytes(response.body)
    total = len(body) + pad_bytes
    response.headers["content-length"] = str(total)
    await send(
        {
            "type": "http.response.start",
            "status": response.status_code,
            "headers": response.raw_headers,
        }
    )
    pieces = max(1, min(total, math.ceil(trickle_seconds / SECONDS_BETWEEN_PIECES)))
    for number in range(pieces):
        if trickle_seconds:
            await asyncio.sleep(trickle_seconds / pieces)
        await _send_between(body, total * number // pieces, total * (number + 1) // pieces, send)
    await send({"type": "http.response.body"})


async def _send_between(body: bytes, start: int, end: int, send: Send) -> None:
    """The bytes from `start` to `end` of the padded body, at most a chunk at a time."""
    while start < end:
        upto = min(end, start + len(CHUNK))
        piece = body[start:upto] if start < len(body) else CHUNK[: upto - start]
        await send({"type": "http.response.body", "body": piece, "more_body": True})
        start += len(piece)
