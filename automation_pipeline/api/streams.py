"""Server-sent events out of the outbox: what a browser hears without Pusher, and takes up again where it broke off."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Header
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from automation_pipeline.core.errors import AutomationError
from automation_pipeline.core.events import Event
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.outbox_reading import Bookmark

LOOK_SECONDS = 0.5
# Proxies close what is silent for long.
BREATH_SECONDS = 15.0
# How long somebody whose token was revoked, or whose reach has shrunk, still listens.
ADMITTED_SECONDS = 10.0
AT_ONCE = 200
AGAIN_MILLISECONDS = 2000

Heard = tuple[Bookmark, Event]
LastEventId = Annotated[
    str | None, Header(alias="Last-Event-ID", max_length=100, description="The last event that was heard.")
]


@dataclass(frozen=True)
class Source:
    """`after` gives what follows an event, oldest first. `is_over`: nothing will follow. `admit` fails once the caller
    may listen no more. `shows` says which of the events the caller may hear."""

    after: Callable[[Session, Bookmark, int], Sequence[Heard]]
    is_over: Callable[[Session], bool]
    admit: Callable[[], None]
    shows: Callable[[Event], bool] = lambda _event: True


async def stream(source: Source, database: Database, after: Bookmark, stopping: asyncio.Event) -> Response:
    """204 when nothing is left to be heard, which tells a browser not to come again."""
    first, over = await run_in_threadpool(_look, source, database, after)
    if over and not first:
        return Response(status_code=204)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    told = _tell(source, database, after, stopping)
    return StreamingResponse(told, media_type="text/event-stream", headers=headers)


async def _tell(source: Source, database: Database, after: Bookmark, stopping: asyncio.Event) -> AsyncGenerator[str]:
    yield f"retry: {AGAIN_MILLISECONDS}\n\n"
    breath, admission = _Every(BREATH_SECONDS), _Every(ADMITTED_SECONDS)
    while not stopping.is_set():
        if admission.is_due() and not await run_in_threadpool(_is_admitted, source):
            return
        found, over = await run_in_threadpool(_look, source, database, after)
        for bookmark, event in found:
            after = bookmark
            if source.shows(event):
                yield _written(bookmark, event)
        if over and len(found) < AT_ONCE:
            return
        if breath.is_due():
            yield ": still here\n\n"
        if len(found) < AT_ONCE:
            await _pause(stopping)


@dataclass
class _Every:
    seconds: float
    since: float = field(default_factory=time.monotonic)

    def is_due(self) -> bool:
        """Once in so many seconds."""
        now = time.monotonic()
        if now - self.since < self.seconds:
            return False
        self.since = now
        return True


def _is_admitted(source: Source) -> bool:
    try:
        source.admit()
    except AutomationError:
        return False
    return True


def _look(source: Source, database: Database, after: Bookmark) -> tuple[Sequence[Heard], bool]:
    """Both of one moment."""
    with database.reading() as session:
        over = source.is_over(session)
        return source.after(session, after, AT_ONCE), over


def _written(bookmark: Bookmark, event: Event) -> str:
    return f"id: {bookmark}\nevent: {event.name}\ndata: {json.dumps(dict(event.payload))}\n\n"


async def _pause(stopping: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            await stopping.wait()
    except TimeoutError:
        return
