"""What a caller may see: scopes by groupe, schedule, audit, channel and organisation."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, cast

from fastapi import Depends
from starlette.requests import Request

from automation_pipeline.api.errors import AuthorizationError
from automation_pipeline.api.parameters import ID, NO_ID, MadeForOrg, OneOrg, TheCaller, TheServices
from automation_pipeline.api.permissions import Entity
from automation_pipeline.audits.queries.audits import fiche_of_audit, is_audit_visible
from automation_pipeline.audits.queries.requests import fiches_of_batch
from automation_pipeline.automation.models.selections import (
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
from automation_pipeline.fiches.queries.fiches import check_visible, visible_fiches
from automation_pipeline.org_jobs.models.job_types import SERVICE_TYPES
from automation_pipeline.org_jobs.models.organisations import ALL_ORGANISATIONS, OrgScope
from automation_pipeline.org_jobs.queries.organisations import get_organisation
from automation_pipeline.org_jobs.queries.schedules import get_schedule
from automation_pipeline.storage.database import Database, Session


def check_in_reach(entity: Entity, named: str, reach: Reach, database: Database) -> None:
    """NotFoundError for what is hidden or missing; InvalidInputError for what is no id at all."""
    if entity in _NUMBERED and not (ID.fullmatch(named) and int(named) <= LARGEST_ID):
        raise InvalidInputError("Invalid request", ((entity, NO_ID),))
    with database.reading() as session:
        if not _LOOKS[entity](session, reach, named):
            raise NotFoundError(missing(entity, named))


def in_reach(session: Session, entity: Entity | None, named: str, reach: Reach) -> bool:
    return entity is not None and _LOOKS[entity](session, reach, named)


def audible(session: Session, caller: Caller, fiche_ids: Iterable[str]) -> set[str]:
    """Those of the fiches whose recordings the caller may read, whatever else of them."""
    reach = caller.reach(Permission.RECORDINGS, Action.READ)
    return set() if reach is None else visible_fiches(session, reach, fiche_ids)


def missing(entity: Entity, named: str) -> str:
    """The sentence of the rooms themselves for one that does not exist."""
    words = {Entity.FICHE: f"Fiche {named} not found", Entity.AUDIT: "Audit not found"}
    return words.get(entity) or f"{entity.name.capitalize()} {named} not found"


def _fiche(session: Session, reach: Reach, named: str) -> bool:
    return bool(visible_fiches(session, reach, [named]))


def _audit(session: Session, reach: Reach, named: str) -> bool:
    return is_audit_visible(session, reach, int(named))


def _schedule(session: Session, reach: Reach, named: str) -> bool:
    return is_schedule_visible(session, reach, int(named))


def _run(session: Session, reach: Reach, named: str) -> bool:
    return is_run_visible(session, reach, int(named))


_NUMBERED = {Entity.AUDIT, Entity.SCHEDULE, Entity.RUN}
_LOOKS: Mapping[Entity, Callable[[Session, Reach, str], bool]] = {
    Entity.FICHE: _fiche,
    Entity.AUDIT: _audit,
    Entity.SCHEDULE: _schedule,
    Entity.RUN: _run,
    Entity.JOB: is_job_visible,
}


_LINKS = {"automation_schedule_id": Entity.SCHEDULE, "automation_run_id": Entity.RUN}


def check_links(
    links: Mapping[str, object], caller: Caller, database: Database, complaint: str
) -> None:
    """InvalidInputError for a schedule or a run that is not the caller's to see, in the words for
    one that does not exist. `links` may hold other fields too."""
    named = [(name, links[name]) for name in _LINKS if links.get(name) is not None]
    faults = [
        (name, "does not exist")
        for name, row_id in named
        if not _is_seen(_LINKS[name], row_id, caller, database)
    ]
    if faults:
        raise InvalidInputError(complaint, tuple(faults))


def _is_seen(entity: Entity, row_id: object, caller: Caller, database: Database) -> bool:
    reach = caller.reach(Permission.AUTOMATION, Action.READ)
    if reach is None or reach.is_whole:
        return reach is not None
    try:
        check_in_reach(entity, str(row_id), reach, database)
    except NotFoundError:
        return False
    return True


def signed(body: Mapping[str, object], caller: Caller) -> Mapping[str, object]:
    """A new schedule is its caller's. A machine token may name another owner."""
    return {
        **body,
        "createdBy": body.get("createdBy", caller.id) if caller.is_machine else caller.id,
    }


def check_selection(given: object, reach: Reach, database: Database) -> None:
    """AuthorizationError for more than is within reach; NotFoundError for a fiche that is not. What
    is no selection is left to those who parse it."""
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
        with database.reading() as session:
            check_visible(session, reach, selection.fiche_ids)


NOT_ALLOWED = "Channel not allowed"
# Tracking ids name the fiche, in all of their forms: the audit's own, a run's and a batch's.
_TRACKED = re.compile(r"(?:^|-)audit-([0-9]+)-[0-9]+")
_RUN = re.compile(r"automation-run-([0-9]{1,19})")


def check_channel(channel: RealtimeChannel, caller: Caller, database: Database) -> None:
    """AuthorizationError, the same one for what is hidden, missing and forbidden."""
    with database.reading() as session:
        if not _CHANNEL_CHECKS[channel.kind](session, caller, channel.id):
            raise AuthorizationError(NOT_ALLOWED)


def _audit_in_reach(session: Session, caller: Caller, named: str) -> bool:
    reach = _reading(caller, Permission.AUDITS)
    if reach is None:
        return False
    tracked = _TRACKED.search(named)
    fiche_id = (
        tracked[1] if tracked else fiche_of_audit(session, int(named)) if _is_id(named) else None
    )
    return fiche_id is not None and bool(visible_fiches(session, reach, [fiche_id]))


def _fiche_in_reach(session: Session, caller: Caller, named: str) -> bool:
    reach = _reading(caller, Permission.FICHES)
    return reach is not None and bool(visible_fiches(session, reach, [named]))


def _job(session: Session, caller: Caller, named: str) -> bool:
    """A run, a job over days, or a batch of audits."""
    run = _RUN.fullmatch(named)
    if run:
        reach = _reading(caller, Permission.AUTOMATION)
        return reach is not None and _is_id(run[1]) and is_run_visible(session, reach, int(run[1]))
    return _fetch_job(session, caller, named) or _batch(session, caller, named)


def _fetch_job(session: Session, caller: Caller, named: str) -> bool:
    reach = _reading(caller, Permission.FICHES)
    return reach is not None and is_job_visible(session, reach, named)


def _batch(session: Session, caller: Caller, named: str) -> bool:
    reach = _reading(caller, Permission.AUDITS)
    if reach is None:
        return False
    fiches = fiches_of_batch(session, named)
    return bool(fiches) and set(fiches) == visible_fiches(session, reach, fiches)


def _everybody(_session: Session, caller: Caller, _named: str) -> bool:
    return _reading(caller, Permission.REALTIME) is not None


def _organisation(_session: Session, caller: Caller, _named: str) -> bool:
    return _reading(caller, Permission.AUTOMATION) is not None


def _reading(caller: Caller, permission: Permission) -> Reach | None:
    return caller.reach(permission, Action.READ)


def _is_id(text: str) -> bool:
    return text.isdigit() and int(text) <= LARGEST_ID


_CHANNEL_CHECKS: Mapping[ChannelKind, Callable[[Session, Caller, str], bool]] = {
    ChannelKind.AUDIT: _audit_in_reach,
    ChannelKind.FICHE: _fiche_in_reach,
    ChannelKind.JOB: _job,
    ChannelKind.GLOBAL: _everybody,
    ChannelKind.PRESENCE_GLOBAL: _everybody,
    ChannelKind.PRESENCE_ORG: _organisation,
}


def within_of(caller: Caller, reach: Reach) -> OrgScope:
    """Who belongs to an organisation has that one; who belongs to none has all of them, or nothing
    to do here."""
    if caller.org_id is not None:
        return OrgScope(caller.org_id)
    if not reach.is_whole:
        raise AuthorizationError("Organisations need the scope ALL, or a token of the organisation")
    return ALL_ORGANISATIONS


def check_may_have_done(caller: Caller, type_: object) -> None:
    """AuthorizationError unless the caller could do by hand what such a job does. Jobs of agents
    need no other permission."""
    known = SERVICE_TYPES.get(type_) if isinstance(type_, str) else None
    permission = None if known is None else known.permission
    if permission is None:
        return
    reach = caller.reach(permission, Action.WRITE)
    if reach is None or not reach.is_whole:
        raise AuthorizationError(f"Jobs of type {type_} need {permission}.write with the scope ALL")


def check_may_run(caller: Caller, schedule_id: str, within: OrgScope, database: Database) -> None:
    """NotFoundError for a schedule that is not there, AuthorizationError for one of a type that is
    not the caller's."""
    with database.reading() as session:
        schedule = get_schedule(session, schedule_id, within)
    check_may_have_done(caller, schedule.job_type)


def narrowed(within: OrgScope, org_id: str | None) -> OrgScope | None:
    """None: what is asked for is beyond what is reached, and nothing is there."""
    if org_id is None:
        return within
    return OrgScope(org_id) if within.includes(org_id) else None


# Async, because it waits for nothing.
async def _within(request: Request) -> OrgScope:
    return cast("OrgScope", request.state.within)


TheWithin = Annotated[
    OrgScope, Depends(_within)
]  # of routes whose rule is BY_ORGANISATION: the guard has looked


def _org(
    caller: TheCaller, within: TheWithin, services: TheServices, org: MadeForOrg = None
) -> str:
    """NotFoundError for another organisation as for one that does not exist: the caller cannot
    tell them apart."""
    if org is None and caller.org_id is not None:
        return caller.org_id
    if org is None:
        raise InvalidInputError("Invalid request", (("org", "is required"),))
    with services.database.reading() as session:
        return get_organisation(session, org, within).id


AnOrg = Annotated[str, Depends(_org)]


def _perhaps_org(
    caller: TheCaller, within: TheWithin, services: TheServices, org: OneOrg = None
) -> str | None:
    """None where neither the token nor the query names one."""
    if org is None and caller.org_id is None:
        return None
    return _org(caller, within, services, org)


PerhapsAnOrg = Annotated[str | None, Depends(_perhaps_org)]
