"""What to do about one variant, now that its price in the shop has been read."""

from enum import StrEnum

from automation_pipeline.pricing.domain.money import Price
from automation_pipeline.pricing.domain.rule import OnDrift


class Step(StrEnum):
    """DONE: the shop has the price already, from a call whose answer was lost or by another hand."""

    WRITE = "write"
    DONE = "done"
    REFUSE = "refuse"


def before_write(observed: Price, before: Price, after: Price, on_drift: OnDrift, *, writes_compare_at: bool) -> Step:
    """A price in another currency is never overwritten: nobody approved it."""
    if observed.stands_as(after, with_compare_at=writes_compare_at):
        return Step.DONE
    if observed.stands_as(before, with_compare_at=writes_compare_at):
        return Step.WRITE
    is_allowed = on_drift is OnDrift.OVERWRITE and observed.currency == before.currency
    return Step.WRITE if is_allowed else Step.REFUSE


def before_rollback(observed: Price, before: Price, after: Price, *, writes_compare_at: bool, force: bool) -> Step:
    """What was edited since it was applied stays as it is, unless somebody insists."""
    if observed.stands_as(before, with_compare_at=writes_compare_at):
        return Step.DONE
    if observed.stands_as(after, with_compare_at=writes_compare_at):
        return Step.WRITE
    return Step.WRITE if force and observed.currency == before.currency else Step.REFUSE
