"""Guardrails on a screen: a project's policy, and the checks that have blocked a price, in words."""

from collections.abc import Callable, Mapping
from decimal import Decimal

from automation_pipeline.cli.output import print_facts
from automation_pipeline.cli.pricing.prices import amount
from automation_pipeline.pricing.domain.policy import Policy

Facts = Mapping[str, object]


def print_policy(project_id: str, policy: Policy | None) -> None:
    if policy is None:
        print_facts({"project": project_id, "guardrails": "none: its runs are applied without an approval"})
        return
    approval = "not needed" if policy.auto_apply else "by somebody else than who made the run"
    money = policy.currency or ""
    print_facts(
        {
            "project": project_id,
            "approval": approval,
            "largest change": _share(policy.max_pct_delta),
            "change in a day": _share(policy.daily_change_budget_pct),
            "floor": None if policy.floor is None else amount(policy.floor, money),
            "ceiling": None if policy.ceiling is None else amount(policy.ceiling, money),
            "floors": _each(policy.floors, money),
            "ceilings": _each(policy.ceilings, money),
        }
    )


def check_words(check: Facts, currency: str) -> str:
    """Why a guardrail has blocked a price."""
    name = str(check.get("name"))
    words = _WORDS.get(name)
    if words is None or not words[1] <= check.keys():
        return name
    return words[0](check, currency)


def _delta(check: Facts, _currency: str) -> str:
    return f"changes by {_percent(check['deltaPct'])}, more than {_percent(check['limit'])}"


def _budget(check: Facts, _currency: str) -> str:
    left, limit = _percent(check["remaining"]), _percent(check["limit"])
    return f"changes by {_percent(check['deltaPct'])}, and {left} of {limit} are left today"


def _floor(check: Facts, currency: str) -> str:
    return f"below the floor of {_money(check['floor'], currency)}"


def _ceiling(check: Facts, currency: str) -> str:
    return f"above the ceiling of {_money(check['ceiling'], currency)}"


def _currency(check: Facts, currency: str) -> str:
    return f"the floor and ceiling are in {check['policyCurrency']}, the price is in {currency}"


# By name of the check: its words, and the facts that they need.
_WORDS: Mapping[str, tuple[Callable[[Facts, str], str], frozenset[str]]] = {
    "maxPctDelta": (_delta, frozenset({"deltaPct", "limit"})),
    "dailyBudget": (_budget, frozenset({"deltaPct", "remaining", "limit"})),
    "floor": (_floor, frozenset({"floor"})),
    "ceiling": (_ceiling, frozenset({"ceiling"})),
    "currency": (_currency, frozenset({"policyCurrency"})),
}


def _money(units: object, currency: str) -> str:
    return amount(int(str(units)), currency)


def _percent(share: object) -> str:
    """Of a fraction: 0.15 is 15 %."""
    return f"{round(Decimal(str(share)) * 100, 2).normalize():f} %"


def _share(limit: Decimal | None) -> str | None:
    return None if limit is None else f"{_percent(limit)} of the price"


def _each(bounds: Mapping[str, int], currency: str) -> str | None:
    return ", ".join(f"{sku} {amount(units, currency)}" for sku, units in bounds.items()) or None
