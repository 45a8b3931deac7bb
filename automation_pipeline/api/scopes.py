"""Checks of what a caller may see: fiches, schedules, runs, audits, channels and organisations."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Annotated, cast

from fastapi import Depends
from starlette.requests import Request

from automation_pipeline.api.errors import AuthorizationError
from automation_pipeline.api.parameters import (
    ID,
    NO_ID,
    CallerDep,
    Context,
    ContextDep,
    OrgFilter,
    ScheduleInPath,
    ServicesDep,
    TargetOrg,
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


def check_in_reach(entity: Entity, id_: str, reach: Reach, database: Database) -> None:
    """Raises NotFoundError if the entity is hidden or missing, and InvalidInputError if `id_` is not
    an id."""
    if entity in _NUMBERED and not _is_id(id_):
        raise InvalidInputError("Invalid request", ((entity, NO_ID),))
    if not database.read(in_reach, entity, id_, reach):
        # The messages that the endpoints have for missing entities.
        raise NotFoundError(
            "Audit not found"
            if entity is Entity.AUDIT
            else f"{entity.name.capitalize()} {id_} not found"
        )


def in_reach(session: Session, entity: Entity, id_: str, reach: Reach) -> bool:
    return _IN_REACH[entity](session, reach, id_)


_IN_REACH: Mapping[Entity, Callable[[Session, Reach, str], bool]] = {
    Entity.FICHE: lambda session, reach, id_: bool(visible_fiches(session, reach, [id_])),
    Entity.AUDIT: lambda session, reach, id_: is_audit_visible(session, reach, int(id_)),
    Entity.SCHEDULE: lambda session, reach, id_: is_schedule_visible(session, reach, int(id_)),
    Entity.RUN: lambda session, reach, id_: is_run_visible(session, reach, int(id_)),
    Entity.JOB: is_job_visible,
}
_NUMBERED = {Entity.AUDIT, Entity.SCHEDULE, Entity.RUN}


def fiches_with_visible_recordings(
    session: Session, caller: Caller, fiche_ids: Iterable[str]
) -> set[str]:
    """Return the fiches whose recordings the caller may read."""
    reach = caller.reach(Permission.RECORDINGS, Action.READ)
    return set() if reach is None else visible_fiches(session, reach, fiche_ids)


_LINKS = {"automation_schedule_id": Entity.SCHEDULE, "automation_run_id": Entity.RUN}


def check_links(
    links: Mapping[str, object], caller: Caller, database: Database, complaint: str
) -> None:
    """Raises InvalidInputError for a schedule or run that the caller may not see, with the message for
    a missing one. Other fields in `links` are ignored."""
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
    """Set the caller as the creator of a new schedule. A machine token may name another creator."""
    creator = body.get("createdBy", caller.id) if caller.is_machine else caller.id
    return {**body, "createdBy": creator}


def without_creator(body: Mapping[str, object], caller: Caller) -> Mapping[str, object]:
    """Ignore a new creator of an existing schedule, except from a machine token."""
    return {name: value for name, value in body.items() if caller.is_machine or name != "createdBy"}


def check_selection(given: object, reach: Reach, database: Database) -> None:
    """Raises AuthorizationError for a selection wider than the reach, and NotFoundError for a fiche out
    of reach. The parser of the request reports an invalid selection."""
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
# The tracking ids of single audits, of runs and of batches all contain the id of the fiche.
_TRACKED = re.compile(r"(?:^|-)audit-([0-9]+)-[0-9]+")
_RUN = re.compile(r"automation-run-([0-9]{1,19})")
# The permission to read that a channel requires.
_CHANNEL_PERMISSIONS: Mapping[ChannelKind, Permission] = {
    ChannelKind.AUDIT: Permission.AUDITS,
    ChannelKind.FICHE: Permission.FICHES,
    ChannelKind.GLOBAL: Permission.REALTIME,
    ChannelKind.PRESENCE_GLOBAL: Permission.REALTIME,
    ChannelKind.PRESENCE_ORG: Permission.AUTOMATION,
}


def check_channel(channel: RealtimeChannel, caller: Caller, database: Database) -> None:
    """Raises AuthorizationError with one message for hidden, missing and forbidden subjects."""
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
    """Whether the caller may read the run, fetch job, or batch of audits with this id."""
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
    return ID.fullmatch(text) is not None and int(text) <= LARGEST_ID


def within_of(caller: Caller, reach: Reach) -> OrgScope:
    """Return the caller's organisation, or all of them for a caller without one."""
    if caller.org_id is not None:
        return OrgScope(caller.org_id)
    if not reach.is_whole:
        raise AuthorizationError("Organisations need the scope ALL, or a token of the organisation")
    return ALL_ORGANISATIONS


def check_job_type_permission(caller: Caller, type_: object) -> None:
    """Raises AuthorizationError unless the caller has the permission for what a job of this type does.
    Jobs of agents need no further permission."""
    known = SERVICE_TYPES.get(type_) if isinstance(type_, str) else None
    if known is None or known.permission is None:
        return
    reach = caller.reach(known.permission, Action.WRITE)
    if reach is None or not reach.is_whole:
        raise AuthorizationError(
            f"Jobs of type {type_} need {known.permission}.write with the scope ALL"
        )


def narrowed(within: OrgScope, org_id: str | None) -> OrgScope | None:
    """Return the scope of a list with the filter `org_id`, or None if that organisation is out of reach."""
    if org_id is None:
        return within
    return OrgScope(org_id) if within.includes(org_id) else None


async def get_org_scope(request: Request) -> OrgScope:
    return cast("OrgScope", request.state.within)


# Only for routes with the rule BY_ORGANISATION, because the guard sets it only there.
OrgScopeDep = Annotated[OrgScope, Depends(get_org_scope)]


class OrgContext(Context):
    """The arguments of use cases of an organisation that record the caller."""

    within: OrgScope


async def get_org_context(context: ContextDep, within: OrgScopeDep) -> OrgContext:
    return {**context, "within": within}


OrgContextDep = Annotated[OrgContext, Depends(get_org_context)]


async def get_call_origins(services: ServicesDep) -> Collection[str]:
    return services.settings.org_jobs_https_allowed_origins


# The origins that jobs of the type HTTPS_CALL may call.
CallOrigins = Annotated[Collection[str], Depends(get_call_origins)]


def get_startable(
    org_schedule_id: ScheduleInPath, caller: CallerDep, within: OrgScopeDep, services: ServicesDep
) -> str:
    """Raises NotFoundError for a missing schedule, and AuthorizationError for a type of job that the
    caller may not start."""
    schedule = services.database.read(get_schedule, org_schedule_id, within)
    check_job_type_permission(caller, schedule.job_type)
    return org_schedule_id


# The id of a schedule whose jobs the caller may start.
StartableSchedule = Annotated[str, Depends(get_startable)]


def get_required_org(
    caller: CallerDep, within: OrgScopeDep, services: ServicesDep, org: TargetOrg = None
) -> str:
    """Return the organisation of a new object. Raises the same NotFoundError for one out of reach as for a
    missing one."""
    if org is None and caller.org_id is not None:
        return caller.org_id
    if org is None:
        raise InvalidInputError("Invalid request", (("org", "is required"),))
    return services.database.read(get_organisation, org, within).id


RequiredOrg = Annotated[str, Depends(get_required_org)]


def get_optional_org(
    caller: CallerDep, within: OrgScopeDep, services: ServicesDep, org: OrgFilter = None
) -> str | None:
    """Return None if neither the token nor the query names an organisation."""
    if org is None and caller.org_id is None:
        return None
    return get_required_org(caller, within, services, org)


OptionalOrg = Annotated[str | None, Depends(get_optional_org)]
