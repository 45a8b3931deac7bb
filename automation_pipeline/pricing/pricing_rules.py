"""Rules and guardrails: create, update, delete."""

from collections.abc import Mapping
from uuid import uuid4

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError, NotFoundError
from automation_pipeline.pricing import events
from automation_pipeline.pricing.models.rules import (
    INVALID_POLICY,
    INVALID_RULE,
    Policy,
    PricingRule,
    changed_rule,
    check_project,
    parse_policy,
    parse_rule,
)
from automation_pipeline.pricing.queries.rules import (
    add_rule,
    delete_policy,
    lock_rule,
    mark_deleted,
    save_policy,
    save_rule,
)
from automation_pipeline.pricing.queries.runs import active_run_of
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.outbox import enqueue


def create_rule(
    given: Mapping[str, object], *, project_id: str, database: Database, clock: Clock, actor: str
) -> PricingRule:
    """InvalidInputError names every invalid field. A rule whose `scheduleAt` has passed starts at
    the next tick."""
    check_project(project_id, INVALID_RULE)
    rule = parse_rule(given)
    with database.transaction() as session:
        stored = add_rule(session, rule, project_id=project_id, actor=actor, now=clock.now())
        enqueue(session, [events.rule_created(stored)])
        return stored


def update_rule(
    rule_id: int,
    patch: Mapping[str, object],
    *,
    database: Database,
    clock: Clock,
    actor: str,
) -> PricingRule:
    """Fields that the patch does not name stay. A change that affects prices creates a new version
    and makes earlier previews stale."""
    with database.transaction() as session:
        stored = lock_rule(session, rule_id)
        changed = changed_rule(stored, patch)
        if changed == stored.as_input:
            return stored
        return save_rule(session, rule_id, changed, actor=actor, now=clock.now())


def delete_rule(rule_id: int, *, database: Database, clock: Clock, actor: str) -> None:
    """ConflictError while a run of the rule is queued or being applied."""
    with database.transaction() as session:
        rule, now = lock_rule(session, rule_id), clock.now()
        run_id = active_run_of(session, rule_id)
        if run_id is not None:
            raise ConflictError(
                f"Pricing rule {rule_id} cannot be deleted while run {run_id} has not ended: wait for its "
                "end, or cancel it."
            )
        mark_deleted(session, rule_id, now)
        enqueue(session, [events.rule_deleted(rule, actor, now)])


def put_policy(
    project_id: str, given: Mapping[str, object], *, database: Database, clock: Clock, actor: str
) -> Policy:
    """Store the policy. Unless it has `autoApply`, the project's runs now need an approval."""
    check_project(project_id, INVALID_POLICY)
    policy = parse_policy(given)
    with database.transaction() as session:
        now = clock.now()
        save_policy(session, project_id, policy, actor=actor, now=now)
        enqueue(session, [events.policy_changed(project_id, policy, actor, now, uuid4().hex)])
    return policy


def remove_policy(project_id: str, *, database: Database, clock: Clock, actor: str) -> None:
    """Without guardrails, the project's runs need no approval."""
    with database.transaction() as session:
        if not delete_policy(session, project_id):
            raise NotFoundError(f"Project {project_id} has no pricing policy.")
        enqueue(session, [events.policy_removed(project_id, actor, clock.now())])
