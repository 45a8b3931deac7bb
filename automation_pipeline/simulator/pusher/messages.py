"""What may be published: read from a body, within the provider's limits, or refused with its
status."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

MOST_DATA_BYTES = 10_240
MOST_BATCHED = 10
MOST_CHANNELS = 100
MOST_NAME_CHARACTERS = 200
_CHANNEL = re.compile(r"[A-Za-z0-9_\-=@,.;]{1,200}")


@dataclass(frozen=True)
class Message:
    channels: tuple[str, ...]
    name: str
    data: str


class RefusedError(Exception):
    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def read_event(body: bytes) -> list[Message]:
    return [_message(_object(body))]


def read_batch(body: bytes) -> list[Message]:
    batch = _object(body).get("batch")
    if not isinstance(batch, list):
        raise RefusedError(400, "The body must have a list named batch")
    entries = cast("list[object]", batch)
    if len(entries) > MOST_BATCHED:
        raise RefusedError(400, f"A batch has at most {MOST_BATCHED} events")
    return [_message(entry, batched=True) for entry in entries]


def _object(body: bytes) -> Mapping[str, object]:
    try:
        posted: object = json.loads(body)
    except (ValueError, RecursionError):
        raise RefusedError(400, "The body is not JSON") from None
    if not isinstance(posted, dict):
        raise RefusedError(400, "The body must be an object")
    return cast("Mapping[str, object]", posted)


def _message(posted: object, *, batched: bool = False) -> Message:
    if not isinstance(posted, dict):
        raise RefusedError(400, "An event must be an object")
    fields = cast("Mapping[str, object]", posted)
    name, data = fields.get("name"), fields.get("data")
    if not isinstance(name, str) or not 0 < len(name) <= MOST_NAME_CHARACTERS:
        raise RefusedError(
            400, f"An event needs a name of at most {MOST_NAME_CHARACTERS} characters"
        )
    if not isinstance(data, str):
        raise RefusedError(400, "An event needs data, as a text")
    if len(data.encode(errors="replace")) > MOST_DATA_BYTES:
        raise RefusedError(413, f"The data of an event has at most {MOST_DATA_BYTES} bytes")
    return Message(_channels(fields, batched=batched), name, data)


def _channels(fields: Mapping[str, object], *, batched: bool) -> tuple[str, ...]:
    listed = None if batched else fields.get("channels")
    names = cast("list[object]", listed) if isinstance(listed, list) else [fields.get("channel")]
    if not 0 < len(names) <= MOST_CHANNELS:
        raise RefusedError(400, f"An event goes to 1 to {MOST_CHANNELS} channels")
    good = tuple(name for name in names if isinstance(name, str) and _CHANNEL.fullmatch(name))
    if len(good) < len(names):
        raise RefusedError(400, "That is not the name of a channel")
    return good
