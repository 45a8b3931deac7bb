"""Give a project its guardrails, in place of those that it had."""

from collections.abc import Mapping
from uuid import uuid4

from automation_pipeline.core.clock import Clock
from automation_pipeline.pricing.domain import rule_events
from automation_pipeline.pricing.domain.policy import INVALID_POLICY, Policy, parse_policy
from automation_pipeline.pricing.domain.project import check_project
from automation_pipeline.pricing.store import policies
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.outbox import enqueue


def put_policy(project_id: str, given: Mapping[str, object], *, database: Database, clock: Clock, actor: str) -> Policy:
    """From now on runs of the project need an approval, unless the policy says `autoApply`."""
    check_project(project_id, INVALID_POLICY)
    policy = parse_policy(given)
    with database.transaction() as session:
        now = clock.now()
        policies.put(session, project_id, policy, actor=actor, now=now)
        enqueue(session, [rule_events.policy_changed(project_id, policy, actor, now, uuid4().hex)])
    return policy
