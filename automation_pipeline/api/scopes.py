"""What a caller may see: scopes by groupe, schedule, audit, channel and organisation."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Annotated, cast

from fastapi import Depends
from starlette.requests import Request

from automation_pipeline.api.errors import AuthorizationError
from automation_pipeline.api.parameters import (
    ID,
    NO_ID,
    Context,
    OrgFilter,
    ScheduleInPath,
    TargetOrg,
    TheCaller,
    TheContext,
    TheServices,
)
from automation_pipeline.api.permissions import Entity
from automation_pipeline.audits.queries.audits import fiche_of_audit, is_audit_visible
from automation_pipeline.audits.requests import fiches_of_batch
from automation_pipeline.automation.models.schedules import (
    FicheSelection,
    SelectionMode,
    parse_selection,
)
from automation_pipeline.automation.queries.run_details import is_run_visible, is_schedule_visible
from automation_pipeline.automation.rules.schedules import selection_scope_error
from automation_pipeline.core.access import Action, Caller, Permission, Reach
from automation_pipeline.core.errors import InvalidInputError, NotFoundError
from automation_pipeline.core.events import ChannelKind, RealtimeChannel
from automation_pipeline.core.json_model import LARGEST_ID
from automation_pipeline.fiches.queries.fetch_jobs import is_job_visible
from automation_pipeline.fiches.queries.mirror import check_visible, visible_fiches
from automation_pipeline.org_jobs.models.job_types import SERVICE_TYPES
from automation_pipeline.org_jobs.models.organisations import ALL_ORGANISATIONS, OrgScope
from automation_pipeline.org_jobs.queries.organisations import get_organisation
from automation_pipeline.org_jobs.queries.schedules import get_schedule
from automation_pipeline.storage.database import Database, Session


def check_in_reach(entity: Entity, named: str, reach: Reach, database: Database) -> None:
    """NotFoundError if it is hidden or missing; InvalidInputError if `named` is not an id."""
    if entity in _NUMBERED and not (ID.fullmatch(named) and int(named) <= LARGEST_ID):
        raise InvalidInputError("Invalid request", ((entity, NO_ID),))
    if not database.read(in_reach, entity, named, reach):
        # The sentence of the packages for one that does not exist.
        raise NotFoundError(
            "Audit not found"
            if entity is Entity.AUDIT
            else f"{entity.name.capitalize()} {named} not found"
        )


def in_reach(session: Session, entity: Entity, named: str, reach: Reach) -> bool:
    return _IN_REACH[entity](session, reach, named)


_IN_REACH: Mapping[Entity, Callable[[Session, Reach, str], bool]] = {
    Entity.FICHE: lambda session, reach, named: bool(visible_fiches(session, reach, [named])),
    Entity.AUDIT: lambda session, reach, named: is_audit_visible(session, reach, int(named)),
    Entity.SCHEDULE: lambda session, reach, named: is_schedule_visible(session, reach, int(named)),
    Entity.RUN: lambda session, reach, named: is_run_visible(session, reach, int(named)),
    Entity.JOB: is_job_visible,
}
_NUMBERED = {Entity.AUDIT, Entity.SCHEDULE, Entity.RUN}


def fiches_with_visible_recordings(
    session: Session, caller: Caller, fiche_ids: Iterable[str]
) -> set[str]:
    """The fiches whose recordings the caller may read."""
    reach = caller.reach(Permission.RECORDINGS, Action.READ)
    return set() if reach is None else visible_fiches(session, reach, fiche_ids)


_LINKS = {"automation_schedule_id": Entity.SCHEDULE, "automation_run_id": Entity.RUN}


def check_links(
    links: Mapping[str, object], caller: Caller, database: Database, complaint: str
) -> None:
    """InvalidInputError for a schedule or a run that the caller may not see, in the words for one
    that does not exist. `links` may contain other fields."""
    reach = caller.reach(Permission.AUTOMATION, Action.READ)
    faults: list[tuple[str, str]] = []
    for name, entity in _LINKS.items():
        if links.get(name) is None or (reach is not None and reach.is_whole):
            continue
        try:
            if reach is None:
                raise NotFoundError(name)
            check_in_reach(entity, str(links[name]), reach, database)
        except NotFoundError:
            faults.append((name, "does not exist"))
    if faults:
        raise InvalidInputError(complaint, tuple(faults))


def with_creator(body: Mapping[str, object], caller: Caller) -> Mapping[str, object]:
    """A new schedule is its caller's. A machine token may name another owner."""
    return {
        **body,
        "createdBy": body.get("createdBy", caller.id) if caller.is_machine else caller.id,
    }


def without_creator(body: Mapping[str, object], caller: Caller) -> Mapping[str, object]:
    """Only a machine token may change the owner of what exists."""
    return {name: value for name, value in body.items() if caller.is_machine or name != "createdBy"}


def check_selection(given: object, reach: Reach, database: Database) -> None:
    """AuthorizationError for more than is in reach; NotFoundError for a fiche that is not. The
    parser of the request refuses what is not a selection."""
    if reach.is_whole or not isinstance(given, Mapping):
        return
    try:
        selection = parse_selection(cast("Mapping[str, object]", given))
    except InvalidInputError:
        return
    check_parsed_selection(selection, reach, database)


def check_parsed_selection(selection: FicheSelection, reach: Reach, database: Database) -> None:
    fault = selection_scope_error(selection, reach)
    if fault is not None:
        raise AuthorizationError(f"{fault[0]} {fault[1]}")
    if selection.mode is SelectionMode.MANUAL and not reach.is_whole:
        database.read(check_visible, reach, selection.fiche_ids)


NOT_ALLOWED = "Channel not allowed"
# Every form of a tracking id names its fiche: that of an audit, of a run and of a batch.
_TRACKED = re.compile(r"(?:^|-)audit-([0-9]+)-[0-9]+")
_RUN = re.compile(r"automation-run-([0-9]{1,19})")
# What a caller must be allowed to read to join a channel.
_CHANNEL_PERMISSIONS: Mapping[ChannelKind, Permission] = {
    ChannelKind.AUDIT: Permission.AUDITS,
    ChannelKind.FICHE: Permission.FICHES,
    ChannelKind.GLOBAL: Permission.REALTIME,
    ChannelKind.PRESENCE_GLOBAL: Permission.REALTIME,
    ChannelKind.PRESENCE_ORG: Permission.AUTOMATION,
}


def check_channel(channel: RealtimeChannel, caller: Caller, database: Database) -> None:
    """AuthorizationError, the same one for hidden, missing and forbidden."""
    if not database.read(_may_join, caller, channel):
        raise AuthorizationError(NOT_ALLOWED)


def _may_join(session: Session, caller: Caller, channel: RealtimeChannel) -> bool:
    if channel.kind is ChannelKind.JOB:
        return _may_follow_job(session, caller, channel.id)
    reach = caller.reach(_CHANNEL_PERMISSIONS[channel.kind], Action.READ)
    if reach is None:
        return False
    if channel.kind is ChannelKind.FICHE:
        return in_reach(session, Entity.FICHE, channel.id, reach)
    if channel.kind is ChannelKind.AUDIT:
        tracked = _TRACKED.search(channel.id)
        fiche_id = tracked[1] if tracked else None
        if tracked is None and _is_id(channel.id):
            fiche_id = fiche_of_audit(session, int(channel.id))
        return fiche_id is not None and in_reach(session, Entity.FICHE, fiche_id, reach)
    return True


def _may_follow_job(session: Session, caller: Caller, job_id: str) -> bool:
    """A run, a fetch job, or a batch of audits."""
    run = _RUN.fullmatch(job_id)
    if run:
        reach = caller.reach(Permission.AUTOMATION, Action.READ)
        return reach is not None and _is_id(run[1]) and in_reach(session, Entity.RUN, run[1], reach)
    reach = caller.reach(Permission.FICHES, Action.READ)
    if reach is not None and in_reach(session, Entity.JOB, job_id, reach):
        return True
    reach = caller.reach(Permission.AUDITS, Action.READ)
    if reach is None:
        return False
    fiches = set(fiches_of_batch(session, job_id))
    return bool(fiches) and fiches == visible_fiches(session, reach, fiches)


def _is_id(text: str) -> bool:
    return text.isdigit() and int(text) <= LARGEST_ID


def within_of(caller: Caller, reach: Reach) -> OrgScope:
    """The organisation that the caller belongs to, or all of them for a caller of none."""
    if caller.org_id is not None:
        return OrgScope(caller.org_id)
    if not reach.is_whole:
        raise AuthorizationError("Organisations need the scope ALL, or a token of the organisation")
    return ALL_ORGANISATIONS


def check_job_type_permission(caller: Caller, type_: object) -> None:
    """AuthorizationError unless the caller may do by hand what such a job does. Agents' jobs need no
    further permission."""
    known = SERVICE_TYPES.get(type_) if isinstance(type_, str) else None
    if known is None or known.permission is None:
        return
    reach = caller.reach(known.permission, Action.WRITE)
    if reach is None or not reach.is_whole:
        raise AuthorizationError(
            f"Jobs of type {type_} need {known.permission}.write with the scope ALL"
        )


def narrowed(within: OrgScope, org_id: str | None) -> OrgScope | None:
    """None if the organisation is out of reach: there is nothing to show."""
    if org_id is None:
        return within
    return OrgScope(org_id) if within.includes(org_id) else None


async def get_within(request: Request) -> OrgScope:
    return cast("OrgScope", request.state.within)


# Only on routes with the rule BY_ORGANISATION, for which the guard sets it.
TheWithin = Annotated[OrgScope, Depends(get_within)]


class OrgContext(Context):
    """What every use case of an organisation that makes a change needs."""

    within: OrgScope


async def get_org_context(context: TheContext, within: TheWithin) -> OrgContext:
    return {**context, "within": within}


TheOrgContext = Annotated[OrgContext, Depends(get_org_context)]


async def get_call_origins(services: TheServices) -> Collection[str]:
    return services.settings.org_jobs_https_allowed_origins


# The origins that jobs of the type HTTPS_CALL may call.
CallOrigins = Annotated[Collection[str], Depends(get_call_origins)]


def get_startable(
    org_schedule_id: ScheduleInPath, caller: TheCaller, within: TheWithin, services: TheServices
) -> str:
    """NotFoundError for a missing schedule, AuthorizationError for a type of job that the caller may
    not start."""
    schedule = services.database.read(get_schedule, org_schedule_id, within)
    check_job_type_permission(caller, schedule.job_type)
    return org_schedule_id


# The id of a schedule whose jobs the caller may start.
StartableSchedule = Annotated[str, Depends(get_startable)]


def get_required_org(
    caller: TheCaller, within: TheWithin, services: TheServices, org: TargetOrg = None
) -> str:
    """The same NotFoundError for another organisation as for a missing one."""
    if org is None and caller.org_id is not None:
        return caller.org_id
    if org is None:
        raise InvalidInputError("Invalid request", (("org", "is required"),))
    return services.database.read(get_organisation, org, within).id


RequiredOrg = Annotated[str, Depends(get_required_org)]


def get_optional_org(
    caller: TheCaller, within: TheWithin, services: TheServices, org: OrgFilter = None
) -> str | None:
    """None where neither the token nor the query names one."""
    if org is None and caller.org_id is None:
        return None
    return get_required_org(caller, within, services, org)


OptionalOrg = Annotated[str | None, Depends(get_optional_org)]
