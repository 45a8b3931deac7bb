"""The route class that applies the table of permissions before a body is read, and hides recording
URLs in responses."""

import json
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Set
from functools import partial
from typing import Any, cast

from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from automation_pipeline.api.authentication import authenticate
from automation_pipeline.api.bodies import JsonBody
from automation_pipeline.api.errors import AuthorizationError
from automation_pipeline.api.permissions import Rule, ScopeCheck, is_shadowed, rule_of
from automation_pipeline.api.scopes import check_in_reach, in_reach, within_of
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.access import Action, Caller, Permission
from automation_pipeline.fiches.queries.mirror import visible_fiches

KEYS = ("recording_url", "recordingUrl")
_MARKS = tuple(key.encode() for key in KEYS)
_FICHE_KEYS = ("fiche_id", "ficheId")
HIDDEN = "[hidden]"

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class GuardedRoute(APIRoute):
    """Checks credentials, permission and scope before a body is read. A route without a row in the table
    of permissions raises an error when it is created."""

    def get_route_handler(self) -> Handler:
        handler = super().get_route_handler()
        rules = {method: rule_of(method, self.path) for method in self.methods or ()}
        for dependency in self.dependant.dependencies:
            if isinstance(dependency.call, JsonBody):
                self.openapi_extra = {**(self.openapi_extra or {}), **dependency.call.openapi}

        async def guarded(request: Request) -> Response:
            if is_shadowed(request.url.path, request.method):
                raise HTTPException(405)
            rule = rules[request.method]
            if rule.public:
                return await handler(request)
            request.state.admit = partial(_admit, request, rule)
            await run_in_threadpool(request.state.admit)
            response = await handler(request)
            return await run_in_threadpool(without_recording_urls, response, request, rule)

        return guarded


def _admit(request: Request, rule: Rule) -> None:
    services: Services = request.app.state.services
    caller = authenticate(request.headers, services)
    request.state.caller = caller
    if rule.permission is None:
        return
    permission = rule.permission if caller.org_id is None else rule.own or rule.permission
    reach = caller.reach(permission, rule.action)
    if reach is None:
        raise AuthorizationError("Missing permission")
    request.state.reach = reach
    if rule.scoped is ScopeCheck.BY_ORGANISATION:
        request.state.within = within_of(caller, reach)
    if rule.entity is not None and not reach.is_whole:
        check_in_reach(rule.entity, request.path_params[rule.entity], reach, services.database)


def without_recording_urls(response: Response, request: Request, rule: Rule) -> Response:
    """Remove the recording URLs that the caller may not read. A URL that is removed under its key is
    replaced in all other texts of the document too."""
    caller, body = cast("Caller", request.state.caller), getattr(response, "body", b"")
    reach = caller.reach(Permission.RECORDINGS, Action.READ)
    if (reach is not None and reach.is_whole) or not any(mark in body for mark in _MARKS):
        return response
    document: object = json.loads(body)
    services: Services = request.app.state.services
    visible: set[str] = set()
    # Objects that name no fiche belong to the entity in the path.
    is_path_visible = False
    if reach is not None:
        fiches = {fiche for one in _objects(document) if (fiche := _own_fiche(one)) is not None}
        entity_id = request.path_params.get(rule.entity) if rule.entity is not None else None
        with services.database.reading() as session:
            visible = visible_fiches(session, reach, fiches)
            if rule.entity is not None and entity_id is not None:
                is_path_visible = in_reach(session, rule.entity, str(entity_id), reach)
    hidden: set[str] = set()
    _remove_urls(document, visible, hidden, is_visible=is_path_visible)
    response.body = json.dumps(_without_texts(document, hidden), ensure_ascii=False).encode()
    response.headers["content-length"] = str(len(response.body))
    return response


def _objects(document: object) -> Iterator[dict[str, object]]:
    """Yield the objects of a document at every depth."""
    if isinstance(document, dict):
        known = cast("dict[str, object]", document)
        yield known
        inner: Iterable[object] = known.values()
    else:
        inner = cast("list[object]", document) if isinstance(document, list) else ()
    for one in inner:
        yield from _objects(one)


def _own_fiche(document: Mapping[str, object]) -> str | None:
    """Return the id of the fiche that an object names, or that it is: a fiche of a sales list has an
    `id` and its recordings."""
    keys = (*_FICHE_KEYS, "id") if "recordings" in document else _FICHE_KEYS
    return next((str(document[key]) for key in keys if isinstance(document.get(key), str)), None)


def _remove_urls(
    document: object, visible: Set[str], hidden: set[str], *, is_visible: bool
) -> None:
    """Remove the recording URLs of fiches that are not `visible` in place, and add them to `hidden`.

    `is_visible` applies to objects that name no fiche."""
    if isinstance(document, list):
        for one in cast("list[object]", document):
            _remove_urls(one, visible, hidden, is_visible=is_visible)
    if not isinstance(document, dict):
        return
    known = cast("dict[str, object]", document)
    # The object itself names the fiche, or an object directly inside it does.
    inner = [cast("Mapping[str, object]", one) for one in known.values() if isinstance(one, dict)]
    named = (_own_fiche(one) for one in (known, *inner))
    fiche = next((fiche for fiche in named if fiche is not None), None)
    is_visible = is_visible if fiche is None else fiche in visible
    for key, value in known.items():
        if key not in KEYS or is_visible:
            _remove_urls(value, visible, hidden, is_visible=is_visible)
            continue
        known[key] = None
        if isinstance(value, str) and "://" in value:
            hidden.add(value)


def _without_texts(document: object, hidden: Set[str]) -> object:
    if not hidden:
        return document
    if isinstance(document, str):
        for url in hidden:
            document = document.replace(url, HIDDEN)
        return document
    if isinstance(document, list):
        return [_without_texts(one, hidden) for one in cast("list[object]", document)]
    if isinstance(document, dict):
        known = cast("dict[str, object]", document)
        return {key: _without_texts(value, hidden) for key, value in known.items()}
    return document
