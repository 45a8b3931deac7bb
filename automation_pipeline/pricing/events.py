"""Pricing's domain events: their names, keys and payloads."""

from datetime import datetime

from automation_pipeline.core.clock import iso
from automation_pipeline.core.events import Event
from automation_pipeline.core.json_model import as_document
from automation_pipeline.pricing.models.rules import TENANT, Policy, PricingRule


def apply_key(run_id: str, target_id: str, cycle: int, attempts: int) -> str:
    """Each call has its own key. A manual retry starts a new cycle."""
    return f"{run_id}:{target_id}:apply:{cycle}.{attempts}"


def rollback_key(run_id: str, target_id: str, number: int) -> str:
    return f"{run_id}:{target_id}:rollback:{number}"


def mismatch_key(run_id: str, target_id: str, check: str) -> str:
    """`check` is the name of the check, such as `5m` or the day of a daily check."""
    return f"{run_id}:{target_id}:mismatch:{check}"


def run_event_key(run_id: str, event: str, cycle: int) -> str:
    return f"{run_id}:{event}:{cycle}"


def request_key(run_id: str, cycle: int) -> str:
    return f"rule-run-{run_id}-{cycle}"


def schedule_key(rule_id: str, due_at: datetime) -> str:
    return f"rule-schedule-{rule_id}-{_milliseconds(due_at)}"


def promotion_end_key(run_id: str, ends_at: datetime) -> str:
    return f"rule-run-{run_id}-end-{_milliseconds(ends_at)}"


def circuit_key(shop: str, opened_until: datetime) -> str:
    return f"circuit:{shop}:{_milliseconds(opened_until)}"


def _milliseconds(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def pricing_event(
    name: str, key: str, subject: str, at: datetime, payload: dict[str, object]
) -> Event:
    """`subject` is a rule, a run, a project, a policy or a shop with its id."""
    return Event(TENANT, key, name, "pricing", subject, at, payload)


def rule_created(rule: PricingRule) -> Event:
    subject = f"rule-{rule.id}"
    return pricing_event(
        "rule.created",
        f"{subject}:created",
        subject,
        rule.created_at,
        {
            "ruleId": str(rule.id),
            "projectId": rule.project_id,
            "name": rule.name,
            "version": rule.version,
            "createdBy": rule.created_by,
        },
    )


def rule_deleted(rule: PricingRule, actor: str, now: datetime) -> Event:
    subject = f"rule-{rule.id}"
    return pricing_event(
        "rule.deleted",
        f"{subject}:deleted",
        subject,
        now,
        {"ruleId": str(rule.id), "projectId": rule.project_id, "deletedBy": actor},
    )


def policy_changed(
    project_id: str, policy: Policy, actor: str, now: datetime, change: str
) -> Event:
    """`change` is a unique id, so that storing an equal policy again emits another event."""
    subject = f"policy-{project_id}"
    return pricing_event(
        "policy.changed",
        f"{subject}:changed:{change}",
        subject,
        now,
        {"projectId": project_id, "changedBy": actor, "policy": as_document(policy)},
    )


def policy_removed(project_id: str, actor: str, now: datetime) -> Event:
    subject = f"policy-{project_id}"
    return pricing_event(
        "policy.removed",
        f"{subject}:removed:{_milliseconds(now)}",
        subject,
        now,
        {"projectId": project_id, "removedBy": actor},
    )


def run_scheduled(
    rule_id: int, project_id: str, run_id: int, schedule_at: datetime, now: datetime
) -> Event:
    return pricing_event(
        "rule.scheduled.queued",
        schedule_key(str(rule_id), schedule_at),
        f"rule-run-{run_id}",
        now,
        {
            "ruleId": str(rule_id),
            "projectId": project_id,
            "runId": str(run_id),
            "scheduledFor": iso(schedule_at),
        },
    )


def schedule_missed(rule_id: int, project_id: str, schedule_at: datetime, now: datetime) -> Event:
    """The promotion ended before its rule started."""
    return pricing_event(
        "rule.scheduled.missed",
        f"{schedule_key(str(rule_id), schedule_at)}:missed",
        f"rule-{rule_id}",
        now,
        {"ruleId": str(rule_id), "projectId": project_id, "scheduledFor": iso(schedule_at)},
    )


def promotion_ended(
    rule_id: int, project_id: str, run_id: int, ends_at: datetime, now: datetime
) -> Event:
    return pricing_event(
        "rule.promotion.ended",
        promotion_end_key(str(run_id), ends_at),
        f"rule-run-{run_id}",
        now,
        {
            "ruleId": str(rule_id),
            "projectId": project_id,
            "runId": str(run_id),
            "endsAt": iso(ends_at),
        },
    )
