"""Ask for a step, or one of its control points, to be judged again: Dagster begins it within seconds."""

import uuid
from dataclasses import dataclass

from automation_pipeline.audits.domain.place import Place
from automation_pipeline.audits.domain.requests import rerun_id
from automation_pipeline.audits.domain.rerun import checked_instructions
from automation_pipeline.audits.store.audits import changeable_audit
from automation_pipeline.audits.store.steps import get_step
from automation_pipeline.core.clock import Clock
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.run_requests import RunWish, file_requests

JOB = "audit_rerun"


@dataclass(frozen=True)
class RequestedRerun:
    """`key` is that of the request."""

    rerun_id: str
    key: str
    event_id: str


def request_rerun(place: Place, *, instructions: str | None = None, database: Database, clock: Clock) -> RequestedRerun:
    """Each is a rerun of its own. NotFoundError when there is nothing at the place, ConflictError unless the audit is
    completed."""
    told, event_id = checked_instructions(instructions), str(uuid.uuid4())
    key = rerun_id(place.audit_id, place.position, place.point, event_id)
    with database.transaction() as session:
        found = changeable_audit(session, place.audit_id)
        get_step(session, place)
        config: dict[str, object] = {
            "audit_id": place.audit_id,
            "step_position": place.position,
            "rerun_id": key,
            **({"control_point_index": place.point} if place.point is not None else {}),
            **({"custom_prompt": told} if told is not None else {}),
        }
        tags = {
            "automation/fiche_id": found.standing.fiche_id,
            "automation/audit_id": str(place.audit_id),
            "automation/trace_id": key,
            "dagster/priority": "10",
        }
        file_requests(session, [RunWish(key, JOB, config, tags)], clock.now())
    return RequestedRerun(key, key, event_id)
