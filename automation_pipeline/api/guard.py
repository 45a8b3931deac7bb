"""The route class that applies the table of permissions before a body is read, and hides addresses of
recordings in what it answers."""

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
    """Checks credentials, permission and scope before a body is read. It cannot be made without a
    row in the table of permissions."""

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
            return await run_in_threadpool(without_audio_addresses, response, request, rule)

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


def without_audio_addresses(response: Response, request: Request, rule: Rule) -> Response:
    """The response without the addresses that its caller may not have. An address that is hidden
    under its key is hidden in every other text of the document too."""
    caller, body = cast("Caller", request.state.caller), getattr(response, "body", b"")
    reach = caller.reach(Permission.RECORDINGS, Action.READ)
    if (reach is not None and reach.is_whole) or not any(mark in body for mark in _MARKS):
        return response
    document: object = json.loads(body)
    services: Services = request.app.state.services
    visible: set[str] = set()
    is_shown_by_path = False
    if reach is not None:
        fiches = {fiche for one in _objects(document) if (fiche := _own_fiche(one)) is not None}
        named = request.path_params.get(rule.entity) if rule.entity is not None else None
        with services.database.reading() as session:
            visible = visible_fiches(session, reach, fiches)
            if rule.entity is not None and named is not None:
                is_shown_by_path = in_reach(session, rule.entity, str(named), reach)
    hidden: set[str] = set()
    _blank_addresses(document, visible, hidden, is_shown=is_shown_by_path)
    response.body = json.dumps(_without_texts(document, hidden), ensure_ascii=False).encode()
    response.headers["content-length"] = str(len(response.body))
    return response


def _objects(document: object) -> Iterator[dict[str, object]]:
    """The objects of a document, at every depth."""
    if isinstance(document, dict):
        known = cast("dict[str, object]", document)
        yield known
        inner: Iterable[object] = known.values()
    else:
        inner = cast("list[object]", document) if isinstance(document, list) else ()
    for one in inner:
        yield from _objects(one)


def _own_fiche(document: Mapping[str, object]) -> str | None:
    """A fiche in a sales list names itself by `id` and contains its recordings."""
    keys = (*_FICHE_KEYS, "id") if "recordings" in document else _FICHE_KEYS
    return next((str(document[key]) for key in keys if isinstance(document.get(key), str)), None)


def _blank_addresses(
    document: object, visible: Set[str], hidden: set[str], *, is_shown: bool
) -> None:
    """Replaces the addresses of fiches that are not `visible` in place, and collects them."""
    if isinstance(document, list):
        for one in cast("list[object]", document):
            _blank_addresses(one, visible, hidden, is_shown=is_shown)
    if not isinstance(document, dict):
        return
    known = cast("dict[str, object]", document)
    # The fiche is named in the object itself, or in the fiche inside it.
    inner = [cast("Mapping[str, object]", one) for one in known.values() if isinstance(one, dict)]
    named = (_own_fiche(one) for one in (known, *inner))
    fiche = next((fiche for fiche in named if fiche is not None), None)
    is_shown = is_shown if fiche is None else fiche in visible
    for key, value in known.items():
        if key not in KEYS or is_shown:
            _blank_addresses(value, visible, hidden, is_shown=is_shown)
            continue
        known[key] = None
        if isinstance(value, str) and "://" in value:
            hidden.add(value)


def _without_texts(document: object, hidden: Set[str]) -> object:
    if not hidden:
        return document
    if isinstance(document, str):
        for address in hidden:
            document = document.replace(address, HIDDEN)
        return document
    if isinstance(document, list):
        return [_without_texts(one, hidden) for one in cast("list[object]", document)]
    if isinstance(document, dict):
        known = cast("dict[str, object]", document)
        return {key: _without_texts(value, hidden) for key, value in known.items()}
    return document
