"""Pusher's authentication and the event stream."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, cast

from fastapi import APIRouter, Header
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from automation_pipeline.api.bodies import FormOrJson, json_body
from automation_pipeline.api.errors import AuthenticationError, AuthorizationError
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.parameters import FicheInPath, IdInPath, TheCaller, TheServices
from automation_pipeline.api.responses import Done, answer_with, refusals
from automation_pipeline.api.scopes import NOT_ALLOWED, check_channel
from automation_pipeline.automation.events import job_id
from automation_pipeline.automation.ports import ChannelClient, ChannelMember
from automation_pipeline.automation.queries.runs import get_run
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.access import Action, Caller, Permission
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

LOOK_SECONDS = 0.5
# Proxies close what is silent for long.
BREATH_SECONDS = 15.0
# How long a stream outlives the revocation of its token or a narrower scope.
ADMITTED_SECONDS = 10.0
AT_ONCE = 200
AGAIN_MILLISECONDS = 2000

Heard = tuple[Bookmark, Event]
LastEventId = Annotated[
    str | None,
    Header(alias="Last-Event-ID", max_length=100, description="The last event that was received."),
]


@dataclass(frozen=True)
class Source:
    """`after` gives what follows an event, oldest first. `is_over`: nothing will follow. `admit`
    fails once the caller may listen no more. `shows` says which of the events the caller may hear.
    """

    after: Callable[[Session, Bookmark, int], Sequence[Heard]]
    is_over: Callable[[Session], bool]
    admit: Callable[[], None]
    shows: Callable[[Event], bool] = lambda _event: True


async def stream(
    source: Source, database: Database, after: Bookmark, stopping: asyncio.Event
) -> Response:
    """204 when no event is left, which makes a browser stop reconnecting."""
    first, over = await run_in_threadpool(_look, source, database, after)
    if over and not first:
        return Response(status_code=204)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    result = _tell(source, database, after, stopping)
    return StreamingResponse(result, media_type="text/event-stream", headers=headers)


async def _tell(
    source: Source, database: Database, after: Bookmark, stopping: asyncio.Event
) -> AsyncGenerator[str]:
    yield f"retry: {AGAIN_MILLISECONDS}\n\n"
    breath, admission = _Every(BREATH_SECONDS), _Every(ADMITTED_SECONDS)
    while not stopping.is_set():
        if admission.is_due() and not await run_in_threadpool(_is_admitted, source):
            return
        found, over = await run_in_threadpool(_look, source, database, after)
        for bookmark, event in found:
            after = bookmark
            if source.shows(event):
                data = json.dumps(dict(event.payload))
                yield f"id: {bookmark}\nevent: {event.name}\ndata: {data}\n\n"
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


async def _pause(stopping: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            await stopping.wait()
    except TimeoutError:
        return


class JoinInput(JsonModel):
    """As Pusher's library asks."""

    model_config = ConfigDict(alias_generator=None, extra="ignore")

    socket_id: str = Field(pattern=r"^[0-9]{1,20}\.[0-9]{1,20}$")
    channel_name: str = Field(min_length=1, max_length=400)


class Leave(BaseModel):
    """As Pusher's library wants it."""

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
        "description": "Events as they come",
    },
    204: {"description": "No event is left: do not reconnect"},
}
# Whose events one must be allowed to read to hear them on a fiche's stream.
_NEEDED = {"audits": Permission.AUDITS, "transcription": Permission.TRANSCRIPTIONS}


@router.post(
    "/api/realtime/pusher/auth",
    response_model=Leave,
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
    caller: TheCaller,
    services: TheServices,
) -> Response:
    """Authorise a user's browser for a channel of an object that the user may read."""
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
        dict(_door(services).authenticate(join.channel_name, join.socket_id, member))
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
    services: TheServices,
) -> Response:
    """Publish one event, to see that browsers hear it."""
    if isinstance(parse_channel(event.channel), ChannelRefusal):
        raise InvalidInputError("Invalid test event", (("channel", "is not a known channel"),))
    await _door(services).trigger(event.channel, event.event, event.payload)
    return answer_with(message="Test event published")


@router.get(
    "/api/automation/runs/{run_id}/events",
    responses={**STREAM, **refusals(404)},
    response_class=Response,
)
async def of_run(
    run_id: IdInPath, request: Request, services: TheServices, last: LastEventId = None
) -> Response:
    """Hear a run from its beginning, or from `Last-Event-ID` on, to its end."""
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
    caller: TheCaller,
    services: TheServices,
    last: LastEventId = None,
) -> Response:
    """Hear what happens to a fiche from now, or from `Last-Event-ID`, on."""
    source = Source(
        after=lambda session, after, limit: events_after(
            session, after, fiche_id=fiche_id, limit=limit
        ),
        admit=request.state.admit,
        is_over=lambda _session: False,
        shows=lambda event: _may_hear(event, caller),
    )
    now = await run_in_threadpool(_newest, services, fiche_id)
    after = Bookmark.read(last) if last else now
    return await stream(source, services.database, after, _stopping(request))


def _may_hear(event: Event, caller: Caller) -> bool:
    needed = _NEEDED.get(event.producer, Permission.FICHES)
    return caller.reach(needed, Action.READ) is not None


def _newest(services: Services, fiche_id: str) -> Bookmark:
    """Raises NotFoundError for an unknown fiche, which never has events."""
    with services.database.reading() as session:
        check_mirrored(session, fiche_id)
        return newest_bookmark(session)


def _stopping(request: Request) -> asyncio.Event:
    return cast("asyncio.Event", request.app.state.stopping)


def _door(services: Services) -> ChannelClient:
    door = services.realtime
    if door is None:
        raise TransientError("Pusher not configured")
    return door
