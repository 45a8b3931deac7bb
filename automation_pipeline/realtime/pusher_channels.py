"""Realtime events over Pusher Channels: in order, a few a call, and a clear verdict on what could not go out."""

import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from automation_pipeline.automation.ports import Member, Published
from automation_pipeline.core.errors import AutomationError, InvalidInputError, PermanentError
from automation_pipeline.core.events import Event
from automation_pipeline.realtime.batches import Entries, Entry, entries_of, in_batches
from automation_pipeline.realtime.payload import message_of
from automation_pipeline.realtime.threads import in_thread
from automation_pipeline.realtime.verdicts import EventRefusedError, PusherAwayError, verdict
from automation_pipeline.realtime.wire import Answer, PusherApp, open_library

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

    async def publish(self, events: Sequence[Event]) -> Published:
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
                return Published(out, handed.stopped)
        return Published(out, stopped)

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

    def authenticate(self, channel: str, socket_id: str, member: Member) -> Mapping[str, str]:
        if not _SOCKET_ID.fullmatch(socket_id):  # what is signed is socket:channel, so neither may hold a colon
            raise InvalidInputError("No such socket", (("socket_id", "it must be two numbers joined by a dot"),))
        if not _CHANNEL.fullmatch(channel):
            raise InvalidInputError("No such channel", (("channel_name", "it holds what no channel's name can hold"),))
        seen = {"user_id": member.id, "user_info": dict(member.info)} if channel.startswith(_PRESENCE) else None
        return self._library.authenticate(channel, socket_id, seen)

    async def check(self) -> None:
        error = await self._ask(self._library.channels_info)
        if error is not None:
            raise error

    async def _hand_over(self, batch: Sequence[Entries]) -> Published:
        """A batch is taken or refused as a whole. If it is refused, its events are tried one after the other."""
        error = await self._send([entry for entries in batch for entry in entries])
        if error is None:
            return Published(len(batch))
        if not isinstance(error, EventRefusedError):
            return Published(0, error)
        for number, entries in enumerate(batch):
            if (error := await self._send(entries)) is not None:
                return Published(number, error)
        return Published(len(batch))

    async def _send(self, entries: Sequence[Entry]) -> AutomationError | None:
        if self._dry_run:
            for entry in entries:
                size = len(entry.data.encode())
                log.info("PUSHER_DRY_RUN: %s to %s (%d bytes) stays here", entry.name, entry.channel, size)
        if not entries or self._dry_run:
            return None
        # Encoded by us: the library takes the size of a Python string for that of its message.
        documents = [entry.document() for entry in entries]
        return await self._ask(lambda: self._library.trigger_batch(documents, True))

    async def _ask(self, call: Callable[[], Answer]) -> AutomationError | None:
        """The error is a value; none is chained, as the library's hold the signed address."""
        began, status = time.perf_counter(), "cancelled"
        try:
            answer = await in_thread(call, 3 * self._seconds)
            status = str(answer.status)
            return verdict(answer, self._now)
        except TimeoutError:
            status = "TimeoutError"
            return PusherAwayError(f"Pusher did not answer within {3 * self._seconds:g} s")
        except OSError as error:
            status = type(error).__name__
            return PusherAwayError(f"Pusher could not be reached ({status})")
        finally:
            self._meter.count("provider_calls_total", provider="pusher", status=status)
            self._meter.count("provider_call_seconds_total", time.perf_counter() - began, provider="pusher")
