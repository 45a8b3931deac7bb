"""Realtime: leave to join a channel, a test event, and streams of events for those who do without Pusher."""

import asyncio
from typing import Any, cast

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from automation_pipeline.api.bodies import FormOrJson, TheBody
from automation_pipeline.api.channel_scopes import NOT_ALLOWED, check_channel
from automation_pipeline.api.context import FicheInPath, IdInPath, TheCaller, TheServices
from automation_pipeline.api.documented import takes
from automation_pipeline.api.envelope import Done, refusals, said
from automation_pipeline.api.errors import AuthenticationError, AuthorizationError
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.schemas.realtime import JoinInput, Leave, TestEventInput
from automation_pipeline.api.streams import LastEventId, Source, stream
from automation_pipeline.automation.domain.events import job_id
from automation_pipeline.automation.ports import ChannelDoor, Member
from automation_pipeline.automation.store.runs import get_run
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.access import Action, Caller, Permission
from automation_pipeline.core.channels import ChannelRefusal, parse_channel
from automation_pipeline.core.errors import InvalidInputError, TransientError
from automation_pipeline.core.events import Event
from automation_pipeline.core.json_model import parse
from automation_pipeline.fiches.store.visibility import check_mirrored
from automation_pipeline.storage.outbox_reading import BEGINNING, Bookmark, events_after, is_withheld, newest_bookmark

router = APIRouter(route_class=GuardedRoute, tags=["realtime"])
STREAM: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}, "description": "Events as they come"},
    204: {"description": "Nothing is left to be heard: do not come again"},
}
# Whose events one must be allowed to read to hear them on a fiche's stream.
_NEEDED = {"audits": Permission.AUDITS, "transcription": Permission.TRANSCRIPTIONS}


@router.post(
    "/api/realtime/pusher/auth",
    response_model=Leave,
    openapi_extra=takes(JoinInput, run={"socket_id": "1234.5678", "channel_name": "private-job-automation-run-12"}),
)
def authenticate(body: FormOrJson, caller: TheCaller, services: TheServices) -> Response:
    """Let a user's browser join a channel, when the user may read what it tells of."""
    if caller.is_machine:
        raise AuthenticationError("User authentication required")
    join = parse(JoinInput, body, "Invalid channel request")
    channel = parse_channel(join.channel_name)
    if channel is ChannelRefusal.MALFORMED:
        raise InvalidInputError("Invalid channel request", (("channel_name", "is not the name of a channel"),))
    if isinstance(channel, ChannelRefusal):
        raise AuthorizationError(NOT_ALLOWED)
    check_channel(channel, caller, services.database)
    member = Member(caller.id, {"name": caller.name})
    return JSONResponse(dict(_door(services).authenticate(join.channel_name, join.socket_id, member)))


@router.post(
    "/api/realtime/pusher/test",
    response_model=Done,
    openapi_extra=takes(TestEventInput, hello={"channel": "private-global", "event": "notification", "payload": {}}),
)
async def test(body: TheBody, services: TheServices) -> Response:
    """Publish one event, to see that browsers hear it."""
    event = parse(TestEventInput, body, "Invalid test event")
    if isinstance(parse_channel(event.channel), ChannelRefusal):
        raise InvalidInputError("Invalid test event", (("channel", "is not a channel of ours"),))
    await _door(services).trigger(event.channel, event.event, event.payload)
    return said(message="Test event published")


@router.get("/api/automation/runs/{run_id}/events", responses={**STREAM, **refusals(404)}, response_class=Response)
async def of_run(run_id: IdInPath, request: Request, services: TheServices, last: LastEventId = None) -> Response:
    """Hear a run from its beginning, or from `Last-Event-ID` on, to its end."""
    run = job_id(run_id)
    source = Source(
        after=lambda session, after, limit: events_after(session, after, correlation_id=run, limit=limit),
        admit=request.state.admit,
        is_over=lambda session: get_run(session, run_id).completed_at is not None and not is_withheld(session, run),
    )
    return await stream(source, services.database, Bookmark.read(last) if last else BEGINNING, _stopping(request))


@router.get("/api/fiches/{fiche_id}/events", responses={**STREAM, **refusals(404)}, response_class=Response)
async def of_fiche(
    fiche_id: FicheInPath, request: Request, caller: TheCaller, services: TheServices, last: LastEventId = None
) -> Response:
    """Hear what happens to a fiche from now, or from `Last-Event-ID`, on."""
    source = Source(
        after=lambda session, after, limit: events_after(session, after, fiche_id=fiche_id, limit=limit),
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
    """NotFoundError for a fiche that we do not know: nothing would ever be heard of it."""
    with services.database.reading() as session:
        check_mirrored(session, fiche_id)
        return newest_bookmark(session)


def _stopping(request: Request) -> asyncio.Event:
    return cast("asyncio.Event", request.app.state.stopping)


def _door(services: Services) -> ChannelDoor:
    door = services.realtime
    if door is None:
        raise TransientError("Pusher not configured")
    return door
