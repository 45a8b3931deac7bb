"""How far a caller reaches among the organisations, which of them something is made for, and what a type asks for."""

from typing import Annotated, cast

from fastapi import Depends
from starlette.requests import Request

from automation_pipeline.api.context import TheCaller, TheServices
from automation_pipeline.api.errors import AuthorizationError
from automation_pipeline.api.org_queries import MadeForOrg
from automation_pipeline.core.access import Action, Caller, Permission, Reach
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.org_jobs.domain.job_types import job_type
from automation_pipeline.org_jobs.domain.tenancy import EVERYWHERE, Within
from automation_pipeline.org_jobs.store.organisations import get_organisation
from automation_pipeline.org_jobs.store.schedules import get_schedule
from automation_pipeline.storage.database import Database


def within_of(caller: Caller, reach: Reach) -> Within:
    """Who belongs to an organisation has that one; who belongs to none has all of them, or nothing to do here."""
    if caller.org_id is not None:
        return Within(caller.org_id)
    if not reach.is_whole:
        raise AuthorizationError("Organisations need the scope ALL, or a token of the organisation")
    return EVERYWHERE


def check_may_have_done(caller: Caller, type_: object) -> None:
    """AuthorizationError unless the caller could do by hand what such a job does. What is no type is for others."""
    permission = _permission_for(type_)
    if permission is None:
        return
    reach = caller.reach(permission, Action.WRITE)
    if reach is None or not reach.is_whole:
        raise AuthorizationError(f"Jobs of type {type_} need {permission}.write with the scope ALL")


def _permission_for(named: object) -> Permission | None:
    try:
        return job_type(named).permission if isinstance(named, str) else None
    except InvalidInputError:
        return None


def check_may_run(caller: Caller, schedule_id: str, within: Within, database: Database) -> None:
    """NotFoundError for a schedule that is not there, AuthorizationError for one of a type that is not the caller's."""
    with database.reading() as session:
        schedule = get_schedule(session, schedule_id, within)
    check_may_have_done(caller, schedule.job_type)


def narrowed(within: Within, org_id: str | None) -> Within | None:
    """None: what is asked for is beyond what is reached, and nothing is there."""
    if org_id is None:
        return within
    return Within(org_id) if within.includes(org_id) else None


# Async, because it waits for nothing.
async def _within(request: Request) -> Within:
    return cast("Within", request.state.within)


TheWithin = Annotated[Within, Depends(_within)]  # of routes whose rule is BY_ORGANISATION: the guard has looked


def _org(caller: TheCaller, within: TheWithin, services: TheServices, org: MadeForOrg = None) -> str:
    """NotFoundError, the same one, for an organisation that is another's and for one that is nobody's."""
    if org is None and caller.org_id is not None:
        return caller.org_id
    if org is None:
        raise InvalidInputError("Invalid request", (("org", "is required"),))
    with services.database.reading() as session:
        return get_organisation(session, org, within).id


AnOrg = Annotated[str, Depends(_org)]
