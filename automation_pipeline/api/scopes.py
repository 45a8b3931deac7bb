"""Whether what a path names is within somebody's reach. Hidden and missing are the same answer, after the same work."""

from collections.abc import Callable, Iterable, Mapping

from automation_pipeline.api.context import ID, NO_ID
from automation_pipeline.api.rules import Entity
from automation_pipeline.audits.store.visibility import is_audit_visible
from automation_pipeline.automation.store.visibility import is_run_visible, is_schedule_visible
from automation_pipeline.core.access import Action, Caller, Permission, Reach
from automation_pipeline.core.errors import InvalidInputError, NotFoundError
from automation_pipeline.core.json_model import LARGEST_ID
from automation_pipeline.fiches.store.jobs import is_job_visible
from automation_pipeline.fiches.store.visibility import visible_fiches
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
