"""What of a pricing rule only those may write who may change prices themselves."""

from collections.abc import Mapping

from automation_pipeline.api.errors import AuthorizationError
from automation_pipeline.core.access import Action, Caller, Permission

_TIMES = ("scheduleAt", "endsAt")


def may_change_prices(caller: Caller) -> bool:
    return caller.reach(Permission.PRICING_RUNS, Action.WRITE) is not None


def check_times(caller: Caller, *rules: Mapping[str, object]) -> None:
    """A rule with a time changes prices by itself then, without anybody who applies it."""
    if any(rule.get(name) is not None for rule in rules for name in _TIMES) and not may_change_prices(caller):
        raise AuthorizationError(
            "A rule with scheduleAt or endsAt changes prices by itself: pricing.runs.write is needed"
        )
