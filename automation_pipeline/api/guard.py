"""The door of every route: credentials, permission, then scope, before anything of the request is looked at."""

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from automation_pipeline.api.audio_addresses import without_audio_addresses
from automation_pipeline.api.authentication import authenticate
from automation_pipeline.api.errors import AuthorizationError
from automation_pipeline.api.methods import is_shadowed
from automation_pipeline.api.org_scopes import within_of
from automation_pipeline.api.rules import Rule, Scoped, rule_of
from automation_pipeline.api.scopes import check_in_reach
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.access import Caller, Reach

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
                response if rule.public else await run_in_threadpool(without_audio_addresses, response, request, rule)
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
