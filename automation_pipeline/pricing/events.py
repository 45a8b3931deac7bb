"""Keys and payloads of pricing's domain events."""

from datetime import datetime

from automation_pipeline.core.clock import iso
from automation_pipeline.core.events import Event
from automation_pipeline.core.json_model import as_document
from automation_pipeline.pricing.models.rules import TENANT, Policy, PricingRule


def apply_key(run_id: str, target_id: str, cycle: int, attempts: int) -> str:
    """One a call: a manual retry begins a new cycle, so that its calls are not taken for the old
    ones."""
    return f"{run_id}:{target_id}:apply:{cycle}.{attempts}"


def rollback_key(run_id: str, target_id: str, number: int) -> str:
    return f"{run_id}:{target_id}:rollback:{number}"


def mismatch_key(run_id: str, target_id: str, check: str) -> str:
    """One a target and check: `5m`, `1h`, or the day of a daily one."""
    return f"{run_id}:{target_id}:mismatch:{check}"


def run_event_key(run_id: str, event: str, cycle: int) -> str:
    return f"{run_id}:{event}:{cycle}"


def request_key(run_id: str, cycle: int) -> str:
    """Of the one door: a run is asked for once a cycle."""
    return f"rule-run-{run_id}-{cycle}"


def schedule_key(rule_id: str, due_at: datetime) -> str:
    return f"rule-schedule-{rule_id}-{round(due_at.timestamp() * 1000)}"


def promotion_end_key(run_id: str, ends_at: datetime) -> str:
    return f"rule-run-{run_id}-end-{round(ends_at.timestamp() * 1000)}"


def circuit_key(shop: str, opened_until: datetime) -> str:
    return f"circuit:{shop}:{round(opened_until.timestamp() * 1000)}"


PRODUCER = "pricing"


def rule_created(rule: PricingRule) -> Event:
    payload: dict[str, object] = {
        "ruleId": str(rule.id),
        "projectId": rule.project_id,
        "name": rule.name,
        "version": rule.version,
        "createdBy": rule.created_by,
    }
    return Event(
        TENANT,
        f"rule-{rule.id}:created",
        "rule.created",
        PRODUCER,
        _of(rule.id),
        rule.created_at,
        payload,
    )


def rule_deleted(rule: PricingRule, actor: str, now: datetime) -> Event:
    payload: dict[str, object] = {
        "ruleId": str(rule.id),
        "projectId": rule.project_id,
        "deletedBy": actor,
    }
    return Event(
        TENANT, f"rule-{rule.id}:deleted", "rule.deleted", PRODUCER, _of(rule.id), now, payload
    )


def policy_changed(
    project_id: str, policy: Policy, actor: str, now: datetime, change: str
) -> Event:
    """`change` is another one each time: guardrails that are put again, unchanged, are told of
    too."""
    payload: dict[str, object] = {
        "projectId": project_id,
        "changedBy": actor,
        "policy": as_document(policy),
    }
    aggregate = f"policy-{project_id}"
    return Event(
        TENANT, f"{aggregate}:changed:{change}", "policy.changed", PRODUCER, aggregate, now, payload
    )


def policy_removed(project_id: str, actor: str, now: datetime) -> Event:
    """From now on nothing holds the project's prices but its rules."""
    payload: dict[str, object] = {"projectId": project_id, "removedBy": actor}
    aggregate = f"policy-{project_id}"
    key = f"{aggregate}:removed:{round(now.timestamp() * 1000)}"
    return Event(TENANT, key, "policy.removed", PRODUCER, aggregate, now, payload)


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
    return Event(TENANT, key, "rule.scheduled.queued", PRODUCER, f"rule-run-{run_id}", now, payload)


def schedule_missed(rule_id: int, project_id: str, schedule_at: datetime, now: datetime) -> Event:
    """Its promotion was over before it was begun."""
    payload: dict[str, object] = {
        "ruleId": str(rule_id),
        "projectId": project_id,
        "scheduledFor": iso(schedule_at),
    }
    key = f"{schedule_key(str(rule_id), schedule_at)}:missed"
    return Event(TENANT, key, "rule.scheduled.missed", PRODUCER, _of(rule_id), now, payload)


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
    return Event(TENANT, key, "rule.promotion.ended", PRODUCER, f"rule-run-{run_id}", now, payload)


def _of(rule_id: int) -> str:
    return f"rule-{rule_id}"
