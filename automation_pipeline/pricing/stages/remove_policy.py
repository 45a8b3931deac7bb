"""Take a project's guardrails away: its runs are checked by their rules alone, and need no approval."""

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.pricing.domain import rule_events
from automation_pipeline.pricing.store import policies
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.outbox import enqueue


def remove_policy(project_id: str, *, database: Database, clock: Clock, actor: str) -> None:
    with database.transaction() as session:
        if not policies.remove(session, project_id):
            raise NotFoundError(f"Project {project_id} has no pricing policy.")
        enqueue(session, [rule_events.policy_removed(project_id, actor, clock.now())])
