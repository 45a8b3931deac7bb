"""Server-sent events out of the outbox: what a browser hears without Pusher, and takes up again where it broke off."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import Header
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from automation_pipeline.core.events import Event
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.outbox_reading import Bookmark

LOOK_SECONDS = 0.5
# Proxies close what is silent for long.
BREATH_SECONDS = 15.0
AT_ONCE = 200
AGAIN_MILLISECONDS = 2000

Heard = tuple[Bookmark, Event]
LastEventId = Annotated[
    str | None, Header(alias="Last-Event-ID", max_length=100, description="The last event that was heard.")
]


@dataclass(frozen=True)
class Source:
    """`after` gives what follows an event, oldest first. `is_over` says that nothing will follow any more; `shows`,
    which of the events the caller may hear."""

    after: Callable[[Session, Bookmark, int], Sequence[Heard]]
    is_over: Callable[[Session], bool]
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
    silent = 0.0
    while not stopping.is_set():
        found, over = await run_in_threadpool(_look, source, database, after)
        for bookmark, event in found:
            after = bookmark
            if source.shows(event):
                yield _written(bookmark, event)
        if over and len(found) < AT_ONCE:
            return
        if len(found) == AT_ONCE:
            continue
        silent = 0.0 if found else silent + LOOK_SECONDS
        if silent >= BREATH_SECONDS:
            silent = 0.0
            yield ": still here\n\n"
        await _pause(stopping)


def _look(source: Source, database: Database, after: Bookmark) -> tuple[Sequence[Heard], bool]:
    """Both of one moment."""
    with database.reading() as session:
        over = source.is_over(session)
        return source.after(session, after, AT_ONCE), over


def _written(bookmark: Bookmark, event: Event) -> str:
    return f"id: {bookmark}\nevent: {event.name}\ndata: {json.dumps(dict(event.payload), ensure_ascii=False)}\n\n"


async def _pause(stopping: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            await stopping.wait()
    except TimeoutError:
        return
