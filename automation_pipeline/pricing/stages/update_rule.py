"""Change what a rule says, field by field."""

from collections.abc import Mapping
from datetime import datetime

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import OutdatedError
from automation_pipeline.core.instants import iso
from automation_pipeline.pricing.domain.pricing_rule import PricingRule
from automation_pipeline.pricing.domain.rule_changes import changed_rule
from automation_pipeline.pricing.store.rules import hold_rule, save_rule
from automation_pipeline.storage.database import Database


def update_rule(
    rule_id: int,
    patch: Mapping[str, object],
    *,
    database: Database,
    clock: Clock,
    actor: str,
    expected: datetime | None = None,
) -> PricingRule:
    """What the patch does not name stays, null clears what may be null. A change of what decides prices is a new
    version; runs that were previewed before are stale by it.

    OutdatedError when the rule was last changed at another instant than the expected one, which may be as it is shown.
    """
    with database.transaction() as session:
        stored = hold_rule(session, rule_id)
        if expected is not None and not _is_of(stored, expected):
            raise OutdatedError(f"Pricing rule {rule_id} was changed meanwhile: look at it again.")
        changed = changed_rule(stored, patch)
        if changed == stored.as_input:
            return stored
        return save_rule(session, rule_id, changed, actor=actor, now=clock.now())


def _is_of(stored: PricingRule, expected: datetime) -> bool:
    """Shown instants have no microseconds."""
    is_as_shown = expected.microsecond % 1000 == 0 and iso(expected) == iso(stored.updated_at)
    return is_as_shown or expected == stored.updated_at
