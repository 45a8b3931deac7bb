"""Ids by which audits are asked for. The same id asks for the same audit, however often it is said."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class Requested:
    """An audit that was asked for: `tracking_id` is known at once, the audit itself when it begins."""

    fiche_id: str
    tracking_id: str


def single_id(fiche_id: str, config_id: int, now: datetime) -> str:
    """Every wish for one fiche is its own."""
    return f"audit-{fiche_id}-{config_id}-{round(now.timestamp() * 1000)}"


def batch_item_id(batch_id: str, fiche_id: str, config_id: int) -> str:
    return f"batch-{batch_id}-audit-{fiche_id}-{config_id}"


def day_id(day: str, fiche_id: str, config_id: int, attempt: str) -> str:
    """`attempt` is the Dagster run's: a later materialisation tries again what failed in an earlier one."""
    return f"day-{day}-audit-{fiche_id}-{config_id}-{attempt}"


def rerun_id(audit_id: int, position: int, point: int | None, event_id: str) -> str:
    of_point = f"-cp-{point}" if point is not None else ""
    return f"rerun-{audit_id}-{position}{of_point}-{event_id}"
