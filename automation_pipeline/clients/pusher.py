"""The client of Pusher Channels, which sends realtime events in order and in small batches."""

import json
import logging
import re
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias, cast

from pusher import Pusher  # pyright: ignore[reportMissingTypeStubs]  no stubs
from pusher.requests import RequestsBackend  # pyright: ignore[reportMissingTypeStubs]  no stubs

from automation_pipeline.automation.ports import ChannelMember, PublishResult
from automation_pipeline.clients.http import count_call
from automation_pipeline.core.background import in_thread
from automation_pipeline.core.errors import (
    AutomationError,
    InvalidInputError,
    PermanentError,
    TransientError,
)
from automation_pipeline.core.events import Event, channels_of
from automation_pipeline.core.metrics import Meter
from automation_pipeline.core.retry import TRANSIENT_STATUSES, retry_after_seconds

# The fields of an event that is too large: enough for a browser to fetch the rest.
KEPT = (
    "audit_id", "audit_db_id", "audit_config_id", "fiche_id", "event_id", "batch_id", "job_id", "jobId", "rerun_id",
    "rerun_scope", "step_position", "step_name", "control_point_index", "schedule_id", "run_id", "status", "progress",
    "current_phase", "progress_percentage", "completed_steps", "total_steps", "failed_steps", "completedSteps",
    "totalSteps", "failedSteps", "completedDays", "totalDays", "totalFiches",
)  # fmt: skip
COUNTED = ("datesCompleted", "datesRemaining", "datesFailed")
_TRUNCATED: Mapping[str, object] = {"truncated": True}


def message_of(payload: object, max_bytes: int) -> str:
    """JSON of at most `max_bytes`. Raises ValueError or TypeError if the payload is not JSON."""
    whole = (
        cast("Mapping[str, object]", payload)
        if isinstance(payload, Mapping)
        else {"value": payload}
    )
    for text in (_json(whole), _json(_shrunk(whole))):
        if len(text.encode()) <= max_bytes:
            return text
    return _json(_TRUNCATED)


def _shrunk(payload: Mapping[str, object]) -> Mapping[str, object]:
    kept = {key: payload[key] for key in KEPT if key in payload}
    lists = {key: payload.get(key) for key in COUNTED}
    counts = {
        f"{key}Count": len(cast("list[object]", dates))
        for key, dates in lists.items()
        if isinstance(dates, list)
    }
    return {**kept, **counts, **_TRUNCATED}


def _json(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode(errors="replace").decode()  # a cut text may end in a lone surrogate


MAX_ENTRIES = 10


class Entry(NamedTuple):
    channel: str
    name: str
    data: str


Entries: TypeAlias = tuple[Entry, ...]


def entries_of(event: Event, *, private: bool, max_bytes: int) -> Entries | PermanentError:
    """One entry per channel of the event; none for an internal event."""
    channels = channels_of(event.name, event.payload)
    try:
        data = message_of(event.payload, max_bytes) if channels else ""
    except (ValueError, TypeError, RecursionError):
        return PermanentError("The event's payload cannot be written as JSON")
    return tuple(Entry(channel.name(private=private), event.name, data) for channel in channels)


def in_batches(events: Sequence[Entries]) -> Generator[Sequence[Entries]]:
    """Batches of at most MAX_ENTRIES, in order. All entries of an event are in one batch, so that the
    event is published or not as a whole."""
    batch: list[Entries] = []
    for entries in events:
        if batch and sum(map(len, batch)) + len(entries) > MAX_ENTRIES:
            yield batch
            batch = []
        batch.append(entries)
    if batch:
        yield batch


MAX_BYTES = 65_536


@dataclass(frozen=True, kw_only=True)
class PusherApp:
    """The account. `host` and `port` replace those of the cluster; `seconds` limits each wait on the
    network."""

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


class _Backend(RequestsBackend):
    """Returns every status. The library's own backend raises exceptions with the status in their
    text."""

    def send_request(self, request: Any) -> PusherAnswer:  # noqa: ANN401  the library has no stubs
        library: Any = self
        with library.session.request(
            request.method,
            request.url,
            headers=request.headers,
            data=request.body,
            timeout=library.client.timeout,
            **library.options,
        ) as response:
            text = b""
            # A body that is read to its end leaves the connection reusable.
            for piece in response.iter_content(4096):
                text += piece
                if len(text) > MAX_BYTES:
                    break
            return PusherAnswer(
                response.status_code,
                text.decode(errors="replace"),
                response.headers.get("Retry-After"),
            )


MAX_CHARACTERS = 200


class EventRefusedError(PermanentError):
    """Pusher refuses this event permanently."""


_ACCOUNT_ERRORS = {
    401: "Pusher refused the key or signature (401): check PUSHER_KEY, PUSHER_SECRET and this machine's clock",
    402: "Pusher takes nothing from this account (402): see what its plan allows",
    403: "Pusher takes nothing from this application (403): it is switched off, or over its quota",
    404: "Pusher does not know the application (404): check PUSHER_APP_ID and PUSHER_CLUSTER",
    407: "A proxy before Pusher refused us (407): check HTTPS_PROXY",
}


def publish_error(answer: PusherAnswer, now: Callable[[], datetime]) -> AutomationError | None:
    if answer.status in {200, 202}:
        return None
    if answer.status in _ACCOUNT_ERRORS:
        return TransientError(_ACCOUNT_ERRORS[answer.status])
    if 400 <= answer.status < 500 and answer.status not in TRANSIENT_STATUSES:
        reason = " ".join("".join(filter(str.isprintable, answer.text)).split())[:MAX_CHARACTERS]
        return EventRefusedError(
            f"Pusher refused the event ({answer.status}){': ' if reason else ''}{reason}"
        )
    wait = retry_after_seconds(answer.retry_after, now())
    return TransientError(f"Pusher answered {answer.status}", retry_after_seconds=wait)


MAX_NAME_LENGTH = 200
_SOCKET_ID = re.compile(r"[0-9]+\.[0-9]+")
_CHANNEL = re.compile(r"[A-Za-z0-9_\-=@,.;]{1,200}")
_PRESENCE = "presence-"
_log = logging.getLogger(__name__)


class PusherChannels:
    def __init__(
        self,
        app: PusherApp,
        *,
        now: Callable[[], datetime],
        private: bool = True,
        max_bytes: int = 9000,
        dry_run: bool = False,
    ) -> None:
        try:
            self._library: Any = cast("Any", Pusher)(
                app.app_id,
                app.key,
                app.secret,
                ssl=app.encrypted,
                host=app.host,
                port=app.port,
                timeout=app.seconds,
                cluster=app.cluster,
                backend=_Backend,
                allow_redirects=False,
                stream=True,
            )
        except ValueError:
            raise PermanentError("PUSHER_APP_ID must be a number") from None
        self._seconds = app.seconds
        self._meter = app.meter
        self._now = now
        self._private = private
        self._max_bytes = max_bytes
        self._dry_run = dry_run

    async def publish(self, events: Sequence[Event]) -> PublishResult:
        published, ready = 0, list[Entries]()
        stopped: AutomationError | None = None
        for event in events:
            entries = entries_of(event, private=self._private, max_bytes=self._max_bytes)
            if isinstance(entries, AutomationError):
                stopped = entries  # reported after the events before it are published
                break
            ready.append(entries)
        for batch in in_batches(ready):
            result = await self._publish_batch(batch)
            published += result.out
            if result.stopped is not None:
                return PublishResult(published, result.stopped)
        return PublishResult(published, stopped)

    async def trigger(self, channel: str, name: str, payload: object) -> None:
        if not _CHANNEL.fullmatch(channel) or not 0 < len(name) <= MAX_NAME_LENGTH:
            raise EventRefusedError("No event can have that channel or that name")
        try:
            data = message_of(payload, self._max_bytes)
        except (ValueError, TypeError, RecursionError):
            raise EventRefusedError("The payload cannot be written as JSON") from None
        error = await self._send([Entry(channel, name, data)])
        if error is not None:
            raise error

    def authenticate(
        self, channel: str, socket_id: str, member: ChannelMember
    ) -> Mapping[str, str]:
        # The signature covers `socket:channel`, so neither may contain a colon.
        if not _SOCKET_ID.fullmatch(socket_id):
            raise InvalidInputError(
                "No such socket", (("socket_id", "it must be two numbers joined by a dot"),)
            )
        if not _CHANNEL.fullmatch(channel):
            raise InvalidInputError(
                "No such channel", (("channel_name", "it holds what no channel's name can hold"),)
            )
        member_data = (
            {"user_id": member.id, "user_info": dict(member.info)}
            if channel.startswith(_PRESENCE)
            else None
        )
        return self._library.authenticate(channel, socket_id, member_data)

    async def check(self) -> None:
        error = await self._call(self._library.channels_info)
        if error is not None:
            raise error

    async def _publish_batch(self, batch: Sequence[Entries]) -> PublishResult:
        """Pusher accepts or refuses a batch as a whole. After a refusal its events are sent singly."""
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
        for channel, name, data in entries if self._dry_run else ():
            size = len(data.encode())
            _log.info("PUSHER_DRY_RUN: %s to %s (%d bytes) stays here", name, channel, size)
        if not entries or self._dry_run:
            return None
        # Encoded here: the library measures the Python string instead of its bytes.
        documents = [entry._asdict() for entry in entries]
        return await self._call(lambda: self._library.trigger_batch(documents, True))

    async def _call(self, call: Callable[[], PusherAnswer]) -> AutomationError | None:
        """The error is a value; none is chained, because the library's contain the signed address."""
        started, status = time.perf_counter(), "cancelled"
        try:
            answer = await in_thread(call, 3 * self._seconds)
            status = str(answer.status)
            return publish_error(answer, self._now)
        except TimeoutError:
            status = "TimeoutError"
            return TransientError(f"Pusher did not answer within {3 * self._seconds:g} s")
        except OSError as error:
            status = type(error).__name__
            return TransientError(f"Pusher could not be reached ({status})")
        finally:
            count_call(self._meter, "pusher", status, time.perf_counter() - started)
