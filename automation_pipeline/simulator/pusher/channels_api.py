"""Pusher's HTTP API: signed calls that publish events."""

import hashlib
import hmac
import json
import re
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import cast

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from automation_pipeline.simulator.endpoint import Endpoint

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


TOLERANCE_SECONDS = 600
_WHOLE_NUMBER = re.compile(r"[0-9]{1,12}")


@dataclass(frozen=True)
class App:
    app_id: str
    key: str
    secret: str


def refusal(
    app: App, method: str, path: str, query: Sequence[tuple[str, str]], now: float
) -> str | None:
    """The reason to refuse the call, or None if the signature is valid."""
    given = {name.lower(): value for name, value in query}
    if len(given) < len(query):
        return "Each parameter can be given once"
    if not hmac.compare_digest(given.get("auth_key", "").encode(), app.key.encode()):
        return "auth_key is not a key of this application"
    if given.get("auth_version") != "1.0":
        return "auth_version must be 1.0"
    at = given.get("auth_timestamp", "")
    if not _WHOLE_NUMBER.fullmatch(at) or abs(int(at) - now) > TOLERANCE_SECONDS:
        return f"auth_timestamp must be within {TOLERANCE_SECONDS} s of the server's time"
    signature = given.pop("auth_signature", "")
    parameters = "&".join(f"{name}={given[name]}" for name in sorted(given))
    signed = "\n".join((method.upper(), path, parameters)).encode()
    expected = hmac.new(app.secret.encode(), signed, hashlib.sha256).hexdigest()
    if not hmac.compare_digest(signature.encode(), expected.encode()):
        return "auth_signature is not the one of this call"
    return None


def is_of_body(digest: str | None, body: bytes) -> bool:
    """A call without a body may omit the digest."""
    if digest is None:
        return not body
    expected = hashlib.md5(body, usedforsecurity=False).hexdigest()
    return hmac.compare_digest(digest.encode(), expected.encode())


MOST_KEPT = 200_000


class Published:
    """The last MOST_KEPT messages, and the exact number of all."""

    def __init__(self) -> None:
        self.count = 0
        self._kept: deque[tuple[int, Message]] = deque(maxlen=MOST_KEPT)

    def add(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self.count += 1
            self._kept.append((self.count, message))

    def reset(self) -> None:
        self.count = 0
        self._kept.clear()

    def find(
        self, channel: str | None, name: str | None, after: int, limit: int
    ) -> Sequence[Mapping[str, object]]:
        found = (
            {
                "number": number,
                "channels": list(message.channels),
                "name": message.name,
                "data": message.data,
            }
            for number, message in self._kept
            if number > after
            and channel in {None, *message.channels}
            and name in {None, message.name}
        )
        return list(islice(found, limit))


NO_CHANNEL = "no channel"


def endpoints(app: App, published: Published) -> list[Endpoint]:
    provider = _Provider(app, published)
    return [
        _endpoint("pusher.event", "events", provider, provider.publishing(read_event), "POST"),
        _endpoint(
            "pusher.batch", "batch_events", provider, provider.publishing(read_batch), "POST"
        ),
        _endpoint("pusher.channels", "channels", provider, provider.channels, "GET"),
    ]


def _endpoint(
    name: str,
    last: str,
    provider: "_Provider",
    answer: "Callable[[Request], Response]",
    method: str,
) -> Endpoint:
    async def handler(request: Request) -> Response:
        return answer(request)

    return Endpoint(
        name=name,
        path=f"/apps/{{app_id}}/{last}",
        handler=handler,
        item=_item,
        methods=(method,),
        refuse=provider.refuse,
        read_body=_read_body,
        error_key="error",
    )


class _Provider:
    def __init__(self, app: App, published: Published) -> None:
        self._app = app
        self._published = published

    def refuse(self, request: Request) -> Response | None:
        if request.path_params["app_id"] != self._app.app_id:
            return JSONResponse({"error": "There is no such application here"}, 404)
        query = request.query_params.multi_items()
        reason = refusal(self._app, request.method, request.url.path, query, time.time())
        return None if reason is None else JSONResponse({"error": reason}, 401)

    def publishing(self, read: Callable[[bytes], list[Message]]) -> Callable[[Request], Response]:
        """If one event of a call is invalid, none is published."""

        def publish(request: Request) -> Response:
            body = cast("bytes", request.state.body)
            if not is_of_body(request.query_params.get("body_md5"), body):
                return JSONResponse({"error": "body_md5 is not the one of this body"}, 401)
            try:
                self._published.add(read(body))
            except RefusedError as refused:
                return JSONResponse({"error": str(refused)}, refused.status)
            return JSONResponse({})

        return publish

    def channels(self, _request: Request) -> Response:
        """No channel has subscribers, because there are no browsers here."""
        return JSONResponse({"channels": {}})


async def _read_body(request: Request) -> None:
    request.state.body = await request.body()


def _item(request: Request) -> str:
    try:
        posted = json.loads(request.state.body)
        first = posted["batch"][0] if "batch" in posted else posted
        return str(first.get("channel") or first["channels"][0])
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        return NO_CHANNEL
