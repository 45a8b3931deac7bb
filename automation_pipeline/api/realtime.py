"""Authorisation of Pusher channels, and event streams."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, cast

from fastapi import APIRouter, Header
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from automation_pipeline.api.bodies import FormOrJson, json_body
from automation_pipeline.api.errors import AuthenticationError, AuthorizationError
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.parameters import CallerDep, FicheInPath, IdInPath, ServicesDep
from automation_pipeline.api.responses import Done, answer_with, refusals
from automation_pipeline.api.scopes import NOT_ALLOWED, check_channel
from automation_pipeline.automation.events import job_id
from automation_pipeline.automation.ports import ChannelClient, ChannelMember
from automation_pipeline.automation.queries.runs import get_run
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.access import Action, Permission
from automation_pipeline.core.errors import AutomationError, InvalidInputError, TransientError
from automation_pipeline.core.events import ChannelRefusal, Event, parse_channel
from automation_pipeline.core.json_model import JsonModel
from automation_pipeline.fiches.queries.mirror import check_mirrored
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.outbox import (
    BEGINNING,
    Bookmark,
    events_after,
    is_withheld,
    newest_bookmark,
)

POLL_SECONDS = 0.5
# Proxies close connections that are silent for long.
KEEP_ALIVE_SECONDS = 15.0
# A stream checks the caller's access again after this time.
ADMITTED_SECONDS = 10.0
PAGE = 200
RECONNECT_MILLISECONDS = 2000

StreamedEvent = tuple[Bookmark, Event]
LastEventId = Annotated[
    str | None,
    Header(alias="Last-Event-ID", max_length=100, description="The last event that was received."),
]


@dataclass(frozen=True)
class Source:
    """The events of a stream.

    `after` returns the events after a bookmark, oldest first. `is_over` returns whether no event will
    follow. `admit` raises an AutomationError once the caller has lost access. `shows` selects the
    events that the caller may see."""

    after: Callable[[Session, Bookmark, int], Sequence[StreamedEvent]]
    is_over: Callable[[Session], bool]
    admit: Callable[[], None]
    shows: Callable[[StreamedEvent], bool] = lambda _event: True

    def is_admitted(self) -> bool:
        try:
            self.admit()
        except AutomationError:
            return False
        return True

    def page(self, session: Session, after: Bookmark) -> tuple[Sequence[StreamedEvent], bool]:
        """Return the next events, and whether the stream is over, both read in one transaction."""
        over = self.is_over(session)
        return self.after(session, after, PAGE), over


async def stream(
    source: Source, database: Database, after: Bookmark, stopping: asyncio.Event
) -> Response:
    """Return a stream, or a 204 if no event is left, after which browsers do not reconnect."""
    first, over = await run_in_threadpool(database.read, source.page, after)
    if over and not first:
        return Response(status_code=204)
    return StreamingResponse(
        _lines(source, database, after, stopping),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def _lines(
    source: Source, database: Database, after: Bookmark, stopping: asyncio.Event
) -> AsyncGenerator[str]:
    yield f"retry: {RECONNECT_MILLISECONDS}\n\n"
    sent_at = admitted_at = time.monotonic()
    while not stopping.is_set():
        if time.monotonic() - admitted_at >= ADMITTED_SECONDS:
            admitted_at = time.monotonic()
            if not await run_in_threadpool(source.is_admitted):
                return
        found, over = await run_in_threadpool(database.read, source.page, after)
        for bookmark, event in filter(source.shows, found):
            data = json.dumps(dict(event.payload))
            yield f"id: {bookmark}\nevent: {event.name}\ndata: {data}\n\n"
        after = found[-1][0] if found else after
        if over and len(found) < PAGE:
            return
        if time.monotonic() - sent_at >= KEEP_ALIVE_SECONDS:
            sent_at = time.monotonic()
            yield ": still here\n\n"
        if len(found) < PAGE:
            await _pause(stopping)


async def _pause(stopping: asyncio.Event) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(POLL_SECONDS):
            await stopping.wait()


class JoinInput(JsonModel):
    """The request of Pusher's library."""

    model_config = ConfigDict(alias_generator=None, extra="ignore")

    socket_id: str = Field(pattern=r"^[0-9]{1,20}\.[0-9]{1,20}$")
    channel_name: str = Field(min_length=1, max_length=400)


class ChannelAuth(BaseModel):
    """The response that Pusher's library expects."""

    auth: str
    channel_data: str | None = None


class TestEventInput(JsonModel):
    channel: str = Field(min_length=1, max_length=200)
    event: str = Field(min_length=1, max_length=200)
    payload: dict[str, Any] = Field(default_factory=dict)  # Any: JSON


router = APIRouter(route_class=GuardedRoute, tags=["realtime"])
STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
        "description": "A stream of server-sent events",
    },
    204: {"description": "No event is left; do not reconnect"},
}
# The permission that a fiche's stream requires for the events of a producer.
_REQUIRED = {"audits": Permission.AUDITS, "transcription": Permission.TRANSCRIPTIONS}


@router.post(
    "/api/realtime/pusher/auth",
    response_model=ChannelAuth,
)
def authenticate(
    join: Annotated[
        JoinInput,
        json_body(
            JoinInput,
            "Invalid channel request",
            reader=FormOrJson,
            run={"socket_id": "1234.5678", "channel_name": "private-job-automation-run-12"},
        ),
    ],
    caller: CallerDep,
    services: ServicesDep,
) -> Response:
    """Authorise a user's browser for a channel whose subject the user may read."""
    if caller.is_machine:
        raise AuthenticationError("User authentication required")
    channel = parse_channel(join.channel_name)
    if channel is ChannelRefusal.MALFORMED:
        raise InvalidInputError(
            "Invalid channel request", (("channel_name", "is not the name of a channel"),)
        )
    if isinstance(channel, ChannelRefusal):
        raise AuthorizationError(NOT_ALLOWED)
    check_channel(channel, caller, services.database)
    member = ChannelMember(caller.id, {"name": caller.name})
    return JSONResponse(
        dict(_channels(services).authenticate(join.channel_name, join.socket_id, member))
    )


@router.post(
    "/api/realtime/pusher/test",
    response_model=Done,
)
async def test(
    event: Annotated[
        TestEventInput,
        json_body(
            TestEventInput,
            "Invalid test event",
            hello={"channel": "private-global", "event": "notification", "payload": {}},
        ),
    ],
    services: ServicesDep,
) -> Response:
    """Publish one event to test whether browsers receive it."""
    if isinstance(parse_channel(event.channel), ChannelRefusal):
        raise InvalidInputError("Invalid test event", (("channel", "is not a known channel"),))
    await _channels(services).trigger(event.channel, event.event, event.payload)
    return answer_with(message="Test event published")


@router.get(
    "/api/automation/runs/{run_id}/events",
    responses={**STREAM, **refusals(404)},
    response_class=Response,
)
async def of_run(
    run_id: IdInPath, request: Request, services: ServicesDep, last: LastEventId = None
) -> Response:
    """Stream the events of a run from its start, or after `Last-Event-ID`, to its end."""
    run = job_id(run_id)
    source = Source(
        after=lambda session, after, limit: events_after(
            session, after, correlation_id=run, limit=limit
        ),
        admit=request.state.admit,
        is_over=lambda session: (
            get_run(session, run_id).completed_at is not None and not is_withheld(session, run)
        ),
    )
    return await stream(
        source, services.database, Bookmark.read(last) if last else BEGINNING, _stopping(request)
    )


@router.get(
    "/api/fiches/{fiche_id}/events", responses={**STREAM, **refusals(404)}, response_class=Response
)
async def of_fiche(
    fiche_id: FicheInPath,
    request: Request,
    caller: CallerDep,
    services: ServicesDep,
    last: LastEventId = None,
) -> Response:
    """Stream the events of a fiche from now on, or after `Last-Event-ID`."""
    source = Source(
        after=lambda session, after, limit: events_after(
            session, after, fiche_id=fiche_id, limit=limit
        ),
        admit=request.state.admit,
        is_over=lambda _session: False,
        shows=lambda one: (
            caller.reach(_REQUIRED.get(one[1].producer, Permission.FICHES), Action.READ) is not None
        ),
    )
    # NotFoundError for an unknown fiche, which never has events.
    await run_in_threadpool(services.database.read, check_mirrored, fiche_id)
    newest = await run_in_threadpool(services.database.read, newest_bookmark)
    after = Bookmark.read(last) if last else newest
    return await stream(source, services.database, after, _stopping(request))


def _stopping(request: Request) -> asyncio.Event:
    return cast("asyncio.Event", request.app.state.stopping)


def _channels(services: Services) -> ChannelClient:
    if services.realtime is None:
        raise TransientError("Pusher not configured")
    return services.realtime
