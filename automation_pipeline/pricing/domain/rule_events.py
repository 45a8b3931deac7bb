"""What the outside hears of rules and guardrails: who made or changed them, and what schedules and promotions did."""

from datetime import datetime

from automation_pipeline.core.events import Event
from automation_pipeline.core.instants import iso
from automation_pipeline.core.json_model import as_document
from automation_pipeline.pricing.domain.keys import promotion_end_key, schedule_key
from automation_pipeline.pricing.domain.policy import Policy
from automation_pipeline.pricing.domain.pricing_rule import TENANT, PricingRule

PRODUCER = "pricing"


def created(rule: PricingRule) -> Event:
    payload: dict[str, object] = {
        "ruleId": str(rule.id),
        "projectId": rule.project_id,
        "name": rule.name,
        "version": rule.version,
        "createdBy": rule.created_by,
    }
    return Event(TENANT, f"rule-{rule.id}:created", "rule.created", PRODUCER, _of(rule.id), rule.created_at, payload)


def deleted(rule: PricingRule, actor: str, now: datetime) -> Event:
    payload: dict[str, object] = {"ruleId": str(rule.id), "projectId": rule.project_id, "deletedBy": actor}
    return Event(TENANT, f"rule-{rule.id}:deleted", "rule.deleted", PRODUCER, _of(rule.id), now, payload)


def policy_changed(project_id: str, policy: Policy, actor: str, now: datetime, change: str) -> Event:
    """`change` is another one each time: guardrails that are put again, unchanged, are told of too."""
    payload: dict[str, object] = {"projectId": project_id, "changedBy": actor, "policy": as_document(policy)}
    aggregate = f"policy-{project_id}"
    return Event(TENANT, f"{aggregate}:changed:{change}", "policy.changed", PRODUCER, aggregate, now, payload)


def policy_removed(project_id: str, actor: str, now: datetime) -> Event:
    """From now on nothing holds the project's prices but its rules."""
    payload: dict[str, object] = {"projectId": project_id, "removedBy": actor}
    aggregate = f"policy-{project_id}"
    key = f"{aggregate}:removed:{round(now.timestamp() * 1000)}"
    return Event(TENANT, key, "policy.removed", PRODUCER, aggregate, now, payload)


def scheduled(rule_id: int, project_id: str, run_id: int, schedule_at: datetime, now: datetime) -> Event:
    payload: dict[str, object] = {
        "ruleId": str(rule_id),
        "projectId": project_id,
        "runId": str(run_id),
        "scheduledFor": iso(schedule_at),
    }
    key = schedule_key(str(rule_id), schedule_at)
    return Event(TENANT, key, "rule.scheduled.queued", PRODUCER, f"rule-run-{run_id}", now, payload)


def missed(rule_id: int, project_id: str, schedule_at: datetime, now: datetime) -> Event:
    """Its promotion was over before it was begun."""
    payload: dict[str, object] = {"ruleId": str(rule_id), "projectId": project_id, "scheduledFor": iso(schedule_at)}
    key = f"{schedule_key(str(rule_id), schedule_at)}:missed"
    return Event(TENANT, key, "rule.scheduled.missed", PRODUCER, _of(rule_id), now, payload)


def promotion_ended(rule_id: int, project_id: str, run_id: int, ends_at: datetime, now: datetime) -> Event:
    payload: dict[str, object] = {
        "ruleId": str(rule_id),
        "projectId": project_id,
        "runId": str(run_id),
        "endsAt": iso(ends_at),
    }
    key = promotion_end_key(str(run_id), ends_at)
    return Event(TENANT, key, "rule.promotion.ended", PRODUCER, f"rule-run-{run_id}", now, payload)


def _of(rule_id: int) -> str:
    return f"rule-{rule_id}"
