"""What callers of limited reach may say of audits."""

from collections.abc import Mapping

from automation_pipeline.api.rules import Entity
from automation_pipeline.api.scopes import check_in_reach
from automation_pipeline.core.access import Action, Caller, Permission
from automation_pipeline.core.errors import InvalidInputError, NotFoundError
from automation_pipeline.storage.database import Database

_LINKS = {"automation_schedule_id": Entity.SCHEDULE, "automation_run_id": Entity.RUN}


def check_links(links: Mapping[str, object], caller: Caller, database: Database, complaint: str) -> None:
    """InvalidInputError for a schedule or a run that is not the caller's to see, in the words for one that does not
    exist. `links` may hold other fields too."""
    named = [(name, links[name]) for name in _LINKS if links.get(name) is not None]
    faults = [
        (name, "does not exist") for name, row_id in named if not _is_seen(_LINKS[name], row_id, caller, database)
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
