"""Take dead letters off the list that nobody will try again. The targets stay failed."""

from collections.abc import Sequence

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.pricing.store.dead_letters import acknowledged_among, mark_acknowledged
from automation_pipeline.storage.database import Database


def acknowledge_dead_letters(
    project_id: str, target_ids: Sequence[int] | None, *, database: Database, clock: Clock, actor: str
) -> int:
    """How many more. All of the project's; or those given, and none of them if one is no dead letter of the project.
    Safe to repeat."""
    with database.transaction() as session:
        marked = mark_acknowledged(session, project_id, target_ids, actor, clock.now())
        strangers = set(target_ids or ()) - set(marked)
        strangers -= set(acknowledged_among(session, project_id, strangers))
        if strangers:
            words = f"is not a dead letter of project {project_id}"
            faults = tuple(("targetIds", f"{target_id} {words}") for target_id in sorted(strangers))
            raise InvalidInputError("These targets cannot be acknowledged.", faults)
        return len(marked)
