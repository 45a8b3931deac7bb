"""The route class that applies the table of permissions before a body is read."""

import json
from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import partial
from typing import Any, cast

from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from automation_pipeline.api.authentication import authenticate
from automation_pipeline.api.errors import AuthorizationError
from automation_pipeline.api.permissions import Rule, Scoped, is_shadowed, rule_of
from automation_pipeline.api.scopes import check_in_reach, in_reach, within_of
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.access import Action, Caller, Permission, Reach
from automation_pipeline.fiches.queries.fiches import visible_fiches

KEYS = ("recording_url", "recordingUrl")
_MARKS = tuple(key.encode() for key in KEYS)
_FICHE_KEYS = ("fiche_id", "ficheId")
HIDDEN = "[hidden]"

IsVisible = Callable[[str], bool]


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
    by_path = False
    if reach is not None:
        with services.database.reading() as session:
            visible = visible_fiches(session, reach, set(_fiches(document)))
            named = request.path_params.get(rule.entity) if rule.entity is not None else None
            by_path = named is not None and in_reach(session, rule.entity, str(named), reach)
    hidden: set[str] = set()
    document = _without_keys(document, visible.__contains__, hidden, shown=by_path)
    response.body = json.dumps(_without_texts(document, hidden), ensure_ascii=False).encode()
    response.headers["content-length"] = str(len(response.body))
    return response


def _fiche_of(document: Mapping[str, object]) -> str | None:
    """Named in the document itself, or in the fiche inside it."""
    inner = [
        cast("Mapping[str, object]", value)
        for value in document.values()
        if isinstance(value, Mapping)
    ]
    return next((named for one in (document, *inner) if (named := _named(one)) is not None), None)


def _named(document: Mapping[str, object]) -> str | None:
    """A fiche in a sales list names itself by `id` and holds its recordings."""
    keys = (*_FICHE_KEYS, "id") if "recordings" in document else _FICHE_KEYS
    return next((str(document[key]) for key in keys if isinstance(document.get(key), str)), None)


def _fiches(document: object) -> Iterator[str]:
    if isinstance(document, dict):
        known = cast("dict[str, object]", document)
        named = _named(known)
        if named is not None:
            yield named
        for value in known.values():
            yield from _fiches(value)
    elif isinstance(document, list):
        for one in cast("list[object]", document):
            yield from _fiches(one)


def _without_keys(
    document: object, is_visible: IsVisible, hidden: set[str], *, shown: bool
) -> object:
    if isinstance(document, list):
        return [
            _without_keys(one, is_visible, hidden, shown=shown)
            for one in cast("list[object]", document)
        ]
    if not isinstance(document, dict):
        return document
    known = cast("dict[str, object]", document)
    fiche_id = _fiche_of(known)
    shown = shown if fiche_id is None else is_visible(fiche_id)
    rest: dict[str, object] = {}
    for key, value in known.items():
        if key in KEYS and not shown:
            hidden.update({value} if isinstance(value, str) and "://" in value else ())
            rest[key] = None
        else:
            rest[key] = _without_keys(value, is_visible, hidden, shown=shown)
    return rest


def _without_texts(document: object, hidden: set[str]) -> object:
    if not hidden:
        return document
    if isinstance(document, str):
        for address in hidden:
            document = document.replace(address, HIDDEN)
        return document
    if isinstance(document, list):
        return [_without_texts(one, hidden) for one in cast("list[object]", document)]
    if isinstance(document, dict):
        return {
            key: _without_texts(value, hidden)
            for key, value in cast("dict[str, object]", document).items()
        }
    return document


Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class GuardedRoute(APIRoute):
    """Refuses to be made without a rule."""

    def get_route_handler(self) -> Handler:
        handler = super().get_route_handler()
        rules = {method: rule_of(method, self.path) for method in self.methods or ()}

        async def guarded(request: Request) -> Response:
            if is_shadowed(request.url.path, request.method):
                raise HTTPException(405)
            rule = rules[request.method]
            if not rule.public:
                request.state.admit = partial(_admit, request, rule)
                await run_in_threadpool(request.state.admit)
            response = await handler(request)
            return (
                response
                if rule.public
                else await run_in_threadpool(without_audio_addresses, response, request, rule)
            )

        return guarded


def _admit(request: Request, rule: Rule) -> None:
    services: Services = request.app.state.services
    caller = authenticate(request.headers, services)
    request.state.caller = caller
    if rule.permission is None:
        return
    reach = permitted(caller, rule)
    request.state.reach = reach
    if rule.scoped is Scoped.BY_ORGANISATION:
        request.state.within = within_of(caller, reach)
    if rule.entity is not None and not reach.is_whole:
        check_in_reach(rule.entity, request.path_params[rule.entity], reach, services.database)


def permitted(caller: Caller, rule: Rule) -> Reach:
    """AuthorizationError without the permission that the rule asks for."""
    assert rule.permission is not None  # noqa: S101  asked of rules that have one
    permission = rule.permission if caller.org_id is None else rule.own or rule.permission
    reach = caller.reach(permission, rule.action)
    if reach is None:
        raise AuthorizationError("Missing permission")
    return reach
