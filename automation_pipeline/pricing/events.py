"""Keys and payloads of pricing's domain events."""

from datetime import datetime

from automation_pipeline.core.clock import iso
from automation_pipeline.core.events import Event
from automation_pipeline.core.json_model import as_document
from automation_pipeline.pricing.models.rules import TENANT, Policy, PricingRule


def apply_key(run_id: str, target_id: str, cycle: int, attempts: int) -> str:
    """One key per call. A manual retry begins a new cycle, with keys of its own."""
    return f"{run_id}:{target_id}:apply:{cycle}.{attempts}"


def rollback_key(run_id: str, target_id: str, number: int) -> str:
    return f"{run_id}:{target_id}:rollback:{number}"


def mismatch_key(run_id: str, target_id: str, check: str) -> str:
    """One key per target and check: `5m`, `1h`, or the day of a daily check."""
    return f"{run_id}:{target_id}:mismatch:{check}"


def run_event_key(run_id: str, event: str, cycle: int) -> str:
    return f"{run_id}:{event}:{cycle}"


def request_key(run_id: str, cycle: int) -> str:
    """The key of the request for a worker."""
    return f"rule-run-{run_id}-{cycle}"


def schedule_key(rule_id: str, due_at: datetime) -> str:
    return f"rule-schedule-{rule_id}-{round(due_at.timestamp() * 1000)}"


def promotion_end_key(run_id: str, ends_at: datetime) -> str:
    return f"rule-run-{run_id}-end-{round(ends_at.timestamp() * 1000)}"


def circuit_key(shop: str, opened_until: datetime) -> str:
    return f"circuit:{shop}:{round(opened_until.timestamp() * 1000)}"


def _event(name: str, key: str, aggregate: str, at: datetime, payload: dict[str, object]) -> Event:
    return Event(TENANT, key, name, "pricing", aggregate, at, payload)


def rule_created(rule: PricingRule) -> Event:
    payload: dict[str, object] = {
        "ruleId": str(rule.id),
        "projectId": rule.project_id,
        "name": rule.name,
        "version": rule.version,
        "createdBy": rule.created_by,
    }
    aggregate = f"rule-{rule.id}"
    return _event("rule.created", f"{aggregate}:created", aggregate, rule.created_at, payload)


def rule_deleted(rule: PricingRule, actor: str, now: datetime) -> Event:
    payload: dict[str, object] = {
        "ruleId": str(rule.id),
        "projectId": rule.project_id,
        "deletedBy": actor,
    }
    aggregate = f"rule-{rule.id}"
    return _event("rule.deleted", f"{aggregate}:deleted", aggregate, now, payload)


def policy_changed(
    project_id: str, policy: Policy, actor: str, now: datetime, change: str
) -> Event:
    """`change` is unique, so that an equal policy that is stored again is an event too."""
    payload: dict[str, object] = {
        "projectId": project_id,
        "changedBy": actor,
        "policy": as_document(policy),
    }
    aggregate = f"policy-{project_id}"
    return _event("policy.changed", f"{aggregate}:changed:{change}", aggregate, now, payload)


def policy_removed(project_id: str, actor: str, now: datetime) -> Event:
    payload: dict[str, object] = {"projectId": project_id, "removedBy": actor}
    aggregate = f"policy-{project_id}"
    key = f"{aggregate}:removed:{round(now.timestamp() * 1000)}"
    return _event("policy.removed", key, aggregate, now, payload)


def run_scheduled(
    rule_id: int, project_id: str, run_id: int, schedule_at: datetime, now: datetime
) -> Event:
    payload: dict[str, object] = {
        "ruleId": str(rule_id),
        "projectId": project_id,
        "runId": str(run_id),
        "scheduledFor": iso(schedule_at),
    }
    key = schedule_key(str(rule_id), schedule_at)
    return _event("rule.scheduled.queued", key, f"rule-run-{run_id}", now, payload)


def schedule_missed(rule_id: int, project_id: str, schedule_at: datetime, now: datetime) -> Event:
    """The promotion ended before its rule started."""
    payload: dict[str, object] = {
        "ruleId": str(rule_id),
        "projectId": project_id,
        "scheduledFor": iso(schedule_at),
    }
    key = f"{schedule_key(str(rule_id), schedule_at)}:missed"
    return _event("rule.scheduled.missed", key, f"rule-{rule_id}", now, payload)


def promotion_ended(
    rule_id: int, project_id: str, run_id: int, ends_at: datetime, now: datetime
) -> Event:
    payload: dict[str, object] = {
        "ruleId": str(rule_id),
        "projectId": project_id,
        "runId": str(run_id),
        "endsAt": iso(ends_at),
    }
    key = promotion_end_key(str(run_id), ends_at)
    return _event("rule.promotion.ended", key, f"rule-run-{run_id}", now, payload)
