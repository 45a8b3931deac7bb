"""Audio of recordings: valid but silent MPEG-1 Layer III of a few seconds, with the call id as
title."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from automation_pipeline.simulator.endpoint import Endpoint
from automation_pipeline.simulator.world.world import Recording, World

MAX_SECONDS = 3
SAMPLE_RATE = 32_000
SAMPLES_PER_FRAME = 1_152
# MPEG-1 Layer III without CRC, 32 kbit/s, 32 kHz, mono: 144 bytes per frame, without padding. A frame of zeros is
# silent.
FRAME = bytes((0xFF, 0xFB, 0x18, 0xC0)).ljust(144, b"\0")


def recording_path(recording: Recording) -> str:
    return f"/recordings/{recording.call_id}/{recording.file_name}"


def mp3(title: str, seconds: float) -> bytes:
    """A silent MP3 of about this length, but at most MAX_SECONDS. Its ID3 title is `title`, in Latin letters."""
    frames = max(1, round(min(seconds, MAX_SECONDS) * SAMPLE_RATE / SAMPLES_PER_FRAME))
    text = b"\0" + title.encode("latin-1")
    tag = b"TIT2" + len(text).to_bytes(4, "big") + b"\0\0" + text
    size = bytes((len(tag) >> shift) & 0x7F for shift in (21, 14, 7, 0))
    return b"ID3\x03\0\0" + size + tag + FRAME * frames


def title_of(head: bytes) -> str | None:
    """The ID3 title of a file that begins with `head`. None if `mp3` did not write it."""
    if head[:5] != b"ID3\x03\0" or head[10:14] != b"TIT2":
        return None
    return head[21 : 20 + int.from_bytes(head[14:18], "big")].decode("latin-1")


def endpoints(world: World) -> list[Endpoint]:
    async def recording(request: Request) -> Response:
        call = world.recording(request.path_params["call_id"])
        if call is None or not call.has_url or call.file_name != request.path_params["file_name"]:
            return JSONResponse({"detail": "There is no such recording."}, 404)
        return Response(mp3(call.call_id, call.duration_seconds), media_type="audio/mpeg")

    return [
        Endpoint(
            name="audio",
            path="/recordings/{call_id}/{file_name}",
            handler=recording,
            item=lambda request: request.path_params["call_id"],
            answers_json=False,
        )
    ]
