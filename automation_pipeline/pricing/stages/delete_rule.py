"""Take a rule away for good. Its row stays for the runs that were made from it; a promotion of it still ends."""

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError
from automation_pipeline.pricing.domain import rule_events
from automation_pipeline.pricing.store.rule_activity import active_run_of
from automation_pipeline.pricing.store.rules import hold_rule, mark_deleted
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.outbox import enqueue


def delete_rule(rule_id: int, *, database: Database, clock: Clock, actor: str) -> None:
    """ConflictError while a run of it waits or is at work."""
    with database.transaction() as session:
        rule, now = hold_rule(session, rule_id), clock.now()
        run_id = active_run_of(session, rule_id)
        if run_id is not None:
            raise ConflictError(
                f"Pricing rule {rule_id} cannot be deleted while run {run_id} is not over: "
                "wait for its end, or cancel it."
            )
        mark_deleted(session, rule_id, now)
        enqueue(session, [rule_events.deleted(rule, actor, now)])
