"""A project's guardrails: they block a price, at the preview and again before it is written, and never bend it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated

from pydantic import BeforeValidator, Field, PlainSerializer, ValidationInfo, field_validator

from automation_pipeline.core.json_model import JsonModel, parse
from automation_pipeline.pricing.domain.field_rules import Amount, Currency, Flag, Number
from automation_pipeline.pricing.domain.money import Price

INVALID_POLICY = "Invalid pricing policy data"

_NO_AMOUNTS: Mapping[str, int] = {}

Share = Annotated[Number, Field(gt=0, le=1)]
Amounts = Annotated[
    Mapping[str, Amount],
    BeforeValidator(lambda given: {} if given is None else given),
    PlainSerializer(dict, return_type=dict[str, int]),
]


class Policy(JsonModel):
    """Shares are fractions: 0.15 means 15 %. A SKU's own floor or ceiling stands instead of the project's."""

    auto_apply: Flag = False
    max_pct_delta: Share | None = None
    floor: Amount | None = None
    ceiling: Amount | None = None
    floors: Amounts = _NO_AMOUNTS
    ceilings: Amounts = _NO_AMOUNTS
    daily_change_budget_pct: Share | None = None
    currency: Annotated[Currency | None, Field(validate_default=True)] = None

    @field_validator("ceiling")
    @classmethod
    def _is_not_below_the_floor(cls, ceiling: int | None, info: ValidationInfo) -> int | None:
        floor: int | None = info.data.get("floor")
        if floor is not None and ceiling is not None and ceiling < floor:
            raise ValueError(f"must not be below the floor of {floor}")
        return ceiling

    @field_validator("currency")
    @classmethod
    def _is_there_for_amounts(cls, currency: str | None, info: ValidationInfo) -> str | None:
        named = [info.data.get(name) for name in ("floor", "ceiling")]
        if currency is None and (
            any(amount is not None for amount in named) or info.data.get("floors") or info.data.get("ceilings")
        ):
            raise ValueError("is required where the policy names amounts")
        return currency


@dataclass(frozen=True)
class Check:
    """`facts` are what was compared, for the person who reads why a price was blocked."""

    name: str
    ok: bool
    facts: Mapping[str, object]


@dataclass(frozen=True)
class Guarded:
    checks: Sequence[Check]

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks)

    @property
    def failing(self) -> list[Check]:
        return [check for check in self.checks if not check.ok]


def parse_policy(given: Mapping[str, object]) -> Policy:
    return parse(Policy, given, INVALID_POLICY)


def guarded(policy: Policy, sku: str | None, current: Price, proposed: int, used: Decimal = Decimal(0)) -> Guarded:
    """`used` is the share of the variant's price that has been changed today, by `used_today`."""
    change = share_of_change(current.unit_amount, proposed)
    checks = [
        *_delta(policy.max_pct_delta, current.unit_amount, change),
        *_bounds(policy, sku, current.currency, proposed),
        *_budget(policy.daily_change_budget_pct, change, used),
    ]
    return Guarded(checks)


def share_of_change(current: int, proposed: int) -> Decimal:
    """How large a change is, as a share of the price; from zero, all of it."""
    if current == 0:
        return Decimal(0) if proposed == 0 else Decimal(1)
    return abs(Decimal(proposed) - current) / current


def used_today(changes: Iterable[tuple[int, int]]) -> Decimal:
    """Of a variant's changes applied since midnight, each as (before, after)."""
    return sum((share_of_change(before, after) for before, after in changes), Decimal(0))


def _delta(limit: Decimal | None, current: int, change: Decimal) -> list[Check]:
    if limit is None:
        return []
    # From zero every price passes: nothing can be measured.
    return [Check("maxPctDelta", current == 0 or change <= limit, {"deltaPct": change, "limit": limit})]


def _bounds(policy: Policy, sku: str | None, currency: str, proposed: int) -> list[Check]:
    floor = policy.floors.get(sku or "", policy.floor)
    ceiling = policy.ceilings.get(sku or "", policy.ceiling)
    if floor is None and ceiling is None:
        return []
    if currency != policy.currency:
        return [Check("currency", False, {"currency": currency, "policyCurrency": policy.currency})]
    checks: list[Check] = []
    if floor is not None:
        checks.append(Check("floor", proposed >= floor, {"floor": floor, "proposedAmount": proposed}))
    if ceiling is not None:
        checks.append(Check("ceiling", proposed <= ceiling, {"ceiling": ceiling, "proposedAmount": proposed}))
    return checks


def _budget(limit: Decimal | None, change: Decimal, used: Decimal) -> list[Check]:
    if limit is None:
        return []
    remaining = max(limit - used, Decimal(0))
    facts = {"deltaPct": change, "used": used, "limit": limit, "remaining": remaining}
    return [Check("dailyBudget", change <= remaining, facts)]
