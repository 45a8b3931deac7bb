"""Whether a preview may still be applied, who must approve it, and how long a rule rests after it was applied."""

from datetime import datetime, timedelta
from enum import StrEnum

LIFETIME = timedelta(minutes=15)


class Stale(StrEnum):
    RULE_CHANGED = "rule_changed"
    TOO_OLD = "too_old"

    @property
    def why(self) -> str:
        return _WHY[self]


_WHY = {
    Stale.RULE_CHANGED: "The rule was changed after the preview: preview it again.",
    Stale.TOO_OLD: f"The preview is older than {LIFETIME.seconds // 60} minutes: preview the rule again.",
}


def stale(previewed_hash: str, rule_hash: str, previewed_at: datetime, now: datetime) -> Stale | None:
    """Prices that have drifted are found and refused one by one, before each write."""
    if previewed_hash != rule_hash:
        return Stale.RULE_CHANGED
    return Stale.TOO_OLD if now - previewed_at > LIFETIME else None


def approval_fault(*, auto_apply: bool, created_by: str, written_by: str | None, approved_by: str | None) -> str | None:
    """Why a run may not be applied yet: unless the project applies by itself, a second person says yes, who neither
    made the run nor wrote the version of the rule that it is of."""
    if auto_apply:
        return None
    if approved_by is None:
        return "The run must be approved first."
    if approved_by == created_by:
        return "The run must be approved by somebody else than its creator."
    return (
        "The run must be approved by somebody else than the author of its rule." if approved_by == written_by else None
    )


def rests_until(last_applied_at: datetime | None, cooldown_minutes: int, now: datetime) -> datetime | None:
    """When the rule may be applied again; None: now."""
    if last_applied_at is None:
        return None
    until = last_applied_at + timedelta(minutes=cooldown_minutes)
    return until if now < until else None
