"""The keys that make events and writes of pricing unique: whoever says a thing twice says it once."""

from datetime import datetime

from automation_pipeline.pricing.domain.money import Price


def apply_key(run_id: str, target_id: str, cycle: int, attempts: int) -> str:
    """One a call: a manual retry begins a new cycle, so that its calls are not taken for the old ones."""
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


def write_key(tenant_id: str, variant_id: str, run_id: str, price: Price) -> str:
    """Of a write in the shop: the same price for the same variant by the same run."""
    return f"{tenant_id}:{variant_id}:{run_id}:{price.unit_amount}"


def circuit_key(shop: str, opened_until: datetime) -> str:
    return f"circuit:{shop}:{round(opened_until.timestamp() * 1000)}"
