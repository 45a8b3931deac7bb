"""Realtime events over Pusher Channels: in order, a few per call, with a clear verdict on what is
refused."""

import asyncio
import json
import logging
import re
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from threading import Thread
from typing import Protocol, TypeAlias, TypeVar, cast

from pusher import Pusher  # pyright: ignore[reportMissingTypeStubs]  it has none: `Library` says what is used
from pusher.requests import RequestsBackend  # pyright: ignore[reportMissingTypeStubs]  the same

from automation_pipeline.automation.ports import ChannelMember, PublishResult
from automation_pipeline.core.errors import (
    AutomationError,
    InvalidInputError,
    PermanentError,
    TransientError,
)
from automation_pipeline.core.events import Event, channels_of
from automation_pipeline.core.metrics import Meter
from automation_pipeline.core.retry import retry_after_seconds

# A browser that gets a shrunk event knows what to fetch.
KEPT = (
    "audit_id", "audit_db_id", "audit_config_id", "fiche_id", "event_id", "batch_id", "job_id", "jobId", "rerun_id",
    "rerun_scope", "step_position", "step_name", "control_point_index", "schedule_id", "run_id", "status", "progress",
    "current_phase", "progress_percentage", "completed_steps", "total_steps", "failed_steps", "completedSteps",
    "totalSteps", "failedSteps", "completedDays", "totalDays", "totalFiches",
)  # fmt: skip
COUNTED = ("datesCompleted", "datesRemaining", "datesFailed")
_NOTHING: Mapping[str, object] = {"truncated": True}


def message_of(payload: object, most_bytes: int) -> str:
    """JSON of at most so many bytes. ValueError or TypeError: there is no JSON for it."""
    whole = (
        cast("Mapping[str, object]", payload)
        if isinstance(payload, Mapping)
        else {"value": payload}
    )
    for fitting in (_json(whole), _json(_shrunk(whole))):
        if len(fitting.encode()) <= most_bytes:
            return fitting
    return _json(_NOTHING)


def _shrunk(payload: Mapping[str, object]) -> Mapping[str, object]:
    kept = {key: payload[key] for key in KEPT if key in payload}
    lists = {key: payload.get(key) for key in COUNTED}
    counts = {
        f"{key}Count": len(cast("list[object]", dates))
        for key, dates in lists.items()
        if isinstance(dates, list)
    }
    return {**kept, **counts, **_NOTHING}


def _json(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode(
        errors="replace"
    ).decode()  # half a character, as a cut text may end in, is no UTF-8


MOST_ENTRIES = 10


@dataclass(frozen=True)
class Entry:
    channel: str
    name: str
    data: str

    def document(self) -> dict[str, str]:
        return {"channel": self.channel, "name": self.name, "data": self.data}


Entries: TypeAlias = tuple[Entry, ...]


class NoMessageError(PermanentError):
    """There is no message for the event: its payload is nothing that JSON can say."""


def entries_of(event: Event, *, private: bool, most_bytes: int) -> Entries | NoMessageError:
    """None at all for an event that browsers do not see."""
    channels = channels_of(event.name, event.payload)
    try:
        data = message_of(event.payload, most_bytes) if channels else ""
    except (ValueError, TypeError, RecursionError):
        return NoMessageError("The event's payload cannot be written as JSON")
    return tuple(Entry(channel.name(private=private), event.name, data) for channel in channels)


def in_batches(events: Sequence[Entries]) -> Generator[Sequence[Entries]]:
    """In their order; no event is torn apart, so that it is known which ones are out."""
    batch: list[Entries] = []
    for entries in events:
        if batch and sum(map(len, batch)) + len(entries) > MOST_ENTRIES:
            yield batch
            batch = []
        batch.append(entries)
    if batch:
        yield batch


Result = TypeVar("Result")


async def in_thread(call: Callable[[], Result], seconds: float) -> Result:
    """TimeoutError: it has not ended by then, and may still do its work."""
    ended: Future[Result] = Future()
    Thread(target=_carry_out, args=(call, ended), daemon=True).start()
    async with asyncio.timeout(seconds):
        return await asyncio.wrap_future(ended)


def _carry_out(call: Callable[[], Result], ended: Future[Result]) -> None:
    if not ended.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:  # noqa: BLE001  it is raised where it is waited for
        ended.set_exception(error)
    else:
        ended.set_result(result)


MOST_BYTES = 65_536


@dataclass(frozen=True, kw_only=True)
class PusherApp:
    """The account. `host` and `port` replace those of the cluster; `seconds` is for each wait on
    the network, and each call is counted in `meter`."""

    app_id: str
    key: str
    secret: str = field(repr=False)
    cluster: str
    host: str | None = None
    port: int | None = None
    encrypted: bool = True
    seconds: float = 5.0
    meter: Meter = field(default_factory=Meter, repr=False)


@dataclass(frozen=True)
class PusherAnswer:
    status: int
    text: str
    retry_after: str | None


class PusherLibrary(Protocol):
    """Of `pusher.Pusher`, with our session behind it: calls return an Answer; a network failure is
    an OSError."""

    def trigger_batch(
        self, batch: Sequence[Mapping[str, str]], already_encoded: bool
    ) -> PusherAnswer: ...
    def channels_info(self) -> PusherAnswer: ...
    def authenticate(
        self, channel: str, socket_id: str, custom_data: object
    ) -> Mapping[str, str]: ...


def open_library(app: PusherApp) -> PusherLibrary:
    """ValueError: the application's id is not a number."""
    open_as = cast(
        "Callable[..., PusherLibrary]", Pusher
    )  # it declares the default of `timeout` as its type
    return open_as(
        app.app_id,
        app.key,
        app.secret,
        ssl=app.encrypted,
        host=app.host,
        port=app.port,
        timeout=app.seconds,
        cluster=app.cluster,
        backend=_Session,
        allow_redirects=False,
        stream=True,
    )


class _Request(Protocol):
    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes


class _Response(Protocol):
    status_code: int
    headers: Mapping[str, str]

    def iter_content(self, chunk_size: int) -> Iterator[bytes]: ...


class _Session(RequestsBackend):
    """The library's own would make an exception of any status but 200, with the status in its
    text."""

    def send_request(self, request: _Request) -> PusherAnswer:
        seconds = cast("float", self.client.timeout)
        send = cast("Callable[..., AbstractContextManager[_Response]]", self.session.request)
        options = cast("dict[str, object]", self.options)
        with send(
            request.method,
            request.url,
            headers=request.headers,
            data=request.body,
            timeout=seconds,
            **options,
        ) as response:
            return PusherAnswer(
                response.status_code, _beginning(response), response.headers.get("Retry-After")
            )


def _beginning(response: _Response) -> str:
    """Read to its end, the connection can be used again."""
    text = b""
    for piece in response.iter_content(4096):
        text += piece
        if len(text) > MOST_BYTES:
            break
    return text.decode(errors="replace")


MOST_CHARACTERS = 200


class PusherUnavailableError(TransientError):
    """Pusher does not take events this time; they wait."""


class PusherAccessError(TransientError):
    """Pusher does not accept our account: whoever set it up must act. Events wait for that; none is
    lost."""


class EventRefusedError(PermanentError):
    """Pusher does not take this event, and would not take it again."""


# Refusals that are about the moment, not about the event.
_PASSING = frozenset({408, 425, 429})
_SET_UP = {
    401: "Pusher refused our key or signature (401): check PUSHER_KEY, PUSHER_SECRET and this machine's clock",
    402: "Pusher takes nothing from this account (402): see what its plan allows",
    403: "Pusher takes nothing from this application (403): it is switched off, or over its quota",
    404: "Pusher does not know the application (404): check PUSHER_APP_ID and PUSHER_CLUSTER",
    407: "A proxy before Pusher refused us (407): check HTTPS_PROXY",
}


def publish_error(answer: PusherAnswer, now: Callable[[], datetime]) -> AutomationError | None:
    """None: it was taken."""
    if answer.status in {200, 202}:
        return None
    if answer.status in _SET_UP:
        return PusherAccessError(_SET_UP[answer.status])
    if 400 <= answer.status < 500 and answer.status not in _PASSING:
        said = " ".join("".join(filter(str.isprintable, answer.text)).split())[:MOST_CHARACTERS]
        return EventRefusedError(
            f"Pusher refused the event ({answer.status}){': ' if said else ''}{said}"
        )
    wait = retry_after_seconds(answer.retry_after, now())
    return PusherUnavailableError(f"Pusher answered {answer.status}", retry_after_seconds=wait)


LONGEST_NAME = 200
_SOCKET_ID = re.compile(r"[0-9]+\.[0-9]+")
_CHANNEL = re.compile(r"[A-Za-z0-9_\-=@,.;]{1,200}")
_PRESENCE = "presence-"
log = logging.getLogger(__name__)


class PusherChannels:
    def __init__(
        self,
        app: PusherApp,
        *,
        now: Callable[[], datetime],
        private: bool = True,
        most_bytes: int = 9000,
        dry_run: bool = False,
    ) -> None:
        try:
            self._library = open_library(app)
        except ValueError:
            raise PermanentError("PUSHER_APP_ID must be a number") from None
        self._seconds = app.seconds
        self._meter = app.meter
        self._now = now
        self._private = private
        self._most_bytes = most_bytes
        self._dry_run = dry_run

    async def publish(self, events: Sequence[Event]) -> PublishResult:
        out, ready = 0, list[Entries]()
        stopped: AutomationError | None = None
        for event in events:
            entries = entries_of(event, private=self._private, most_bytes=self._most_bytes)
            if isinstance(entries, AutomationError):
                stopped = entries  # once those before it are out
                break
            ready.append(entries)
        for batch in in_batches(ready):
            handed = await self._hand_over(batch)
            out += handed.out
            if handed.stopped is not None:
                return PublishResult(out, handed.stopped)
        return PublishResult(out, stopped)

    async def trigger(self, channel: str, name: str, payload: object) -> None:
        if not _CHANNEL.fullmatch(channel) or not 0 < len(name) <= LONGEST_NAME:
            raise EventRefusedError("No event can have that channel or that name")
        try:
            data = message_of(payload, self._most_bytes)
        except (ValueError, TypeError, RecursionError):
            raise EventRefusedError("The payload cannot be written as JSON") from None
        error = await self._send([Entry(channel, name, data)])
        if error is not None:
            raise error

    def authenticate(
        self, channel: str, socket_id: str, member: ChannelMember
    ) -> Mapping[str, str]:
        if not _SOCKET_ID.fullmatch(
            socket_id
        ):  # what is signed is socket:channel, so neither may hold a colon
            raise InvalidInputError(
                "No such socket", (("socket_id", "it must be two numbers joined by a dot"),)
            )
        if not _CHANNEL.fullmatch(channel):
            raise InvalidInputError(
                "No such channel", (("channel_name", "it holds what no channel's name can hold"),)
            )
        seen = (
            {"user_id": member.id, "user_info": dict(member.info)}
            if channel.startswith(_PRESENCE)
            else None
        )
        return self._library.authenticate(channel, socket_id, seen)

    async def check(self) -> None:
        error = await self._ask(self._library.channels_info)
        if error is not None:
            raise error

    async def _hand_over(self, batch: Sequence[Entries]) -> PublishResult:
        """A batch is taken or refused as a whole. If it is refused, its events are tried one after
        the other."""
        error = await self._send([entry for entries in batch for entry in entries])
        if error is None:
            return PublishResult(len(batch))
        if not isinstance(error, EventRefusedError):
            return PublishResult(0, error)
        for number, entries in enumerate(batch):
            if (error := await self._send(entries)) is not None:
                return PublishResult(number, error)
        return PublishResult(len(batch))

    async def _send(self, entries: Sequence[Entry]) -> AutomationError | None:
        if self._dry_run:
            for entry in entries:
                size = len(entry.data.encode())
                log.info(
                    "PUSHER_DRY_RUN: %s to %s (%d bytes) stays here",
                    entry.name,
                    entry.channel,
                    size,
                )
        if not entries or self._dry_run:
            return None
        # Encoded by us: the library takes the size of a Python string for that of its message.
        documents = [entry.document() for entry in entries]
        return await self._ask(lambda: self._library.trigger_batch(documents, True))

    async def _ask(self, call: Callable[[], PusherAnswer]) -> AutomationError | None:
        """The error is a value; none is chained, as the library's hold the signed address."""
        began, status = time.perf_counter(), "cancelled"
        try:
            answer = await in_thread(call, 3 * self._seconds)
            status = str(answer.status)
            return publish_error(answer, self._now)
        except TimeoutError:
            status = "TimeoutError"
            return PusherUnavailableError(f"Pusher did not answer within {3 * self._seconds:g} s")
        except OSError as error:
            status = type(error).__name__
            return PusherUnavailableError(f"Pusher could not be reached ({status})")
        finally:
            self._meter.count("provider_calls_total", provider="pusher", status=status)
            self._meter.count(
                "provider_call_seconds_total", time.perf_counter() - began, provider="pusher"
            )
