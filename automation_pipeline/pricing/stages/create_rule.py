"""Store a new rule, in its first version."""

from collections.abc import Mapping

from automation_pipeline.core.clock import Clock
from automation_pipeline.pricing.domain import rule_events
from automation_pipeline.pricing.domain.pricing_rule import PricingRule
from automation_pipeline.pricing.domain.project import check_project
from automation_pipeline.pricing.domain.rule import INVALID_RULE, parse_rule
from automation_pipeline.pricing.store.rules import add_rule
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.outbox import enqueue


def create_rule(
    given: Mapping[str, object], *, project_id: str, database: Database, clock: Clock, actor: str
) -> PricingRule:
    """InvalidInputError names every field at fault. A `scheduleAt` that lies behind starts it at the next look."""
    check_project(project_id, INVALID_RULE)
    rule = parse_rule(given)
    with database.transaction() as session:
        stored = add_rule(session, rule, project_id=project_id, actor=actor, now=clock.now())
        enqueue(session, [rule_events.created(stored)])
        return stored
