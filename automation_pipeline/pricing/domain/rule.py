"""A pricing rule as people give it: which variants, what becomes of their prices, when, and within which limits."""

import hashlib
import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, cast

from pydantic import Field, ValidationInfo, field_validator, model_validator

from automation_pipeline.core.json_model import JsonModel, as_document, parse
from automation_pipeline.pricing.domain.field_rules import Currency, Flag, Whole, ZonedInstant
from automation_pipeline.pricing.domain.money import decimals_of
from automation_pipeline.pricing.domain.rounding import with_ending
from automation_pipeline.pricing.domain.selector import Selector, bands_of, too_wild
from automation_pipeline.pricing.domain.transform import Transform, names_amounts

INVALID_RULE = "Invalid pricing rule data"
LONGEST_COOLDOWN_MINUTES = 30 * 24 * 60


class OnDrift(StrEnum):
    """What becomes of a variant whose price in the shop is no longer the one that was previewed."""

    REFUSE = "refuse"
    OVERWRITE = "overwrite"


class RuleInput(JsonModel):
    """With a currency, the rule leaves variants alone that are priced in another; amounts are always in it.

    A rule with `ends_at` is a promotion: what it has applied is rolled back then.
    """

    name: str = Field(min_length=1, max_length=255)
    description: str | None = Field(default=None, max_length=2000)
    enabled: Flag = True
    selector: Selector
    transform: Transform
    currency: Currency | None = None
    schedule_at: ZonedInstant | None = None
    ends_at: ZonedInstant | None = None
    on_drift: OnDrift = OnDrift.REFUSE
    cooldown_minutes: Annotated[Whole, Field(ge=0, le=LONGEST_COOLDOWN_MINUTES)] = 0

    @model_validator(mode="before")
    @classmethod
    def _looks_at_what_is_left_out(cls, given: object) -> object:
        return {"currency": None, **cast("Mapping[str, object]", given)} if isinstance(given, Mapping) else given

    @field_validator("selector", mode="before")
    @classmethod
    def _is_of_a_sane_size(cls, given: object) -> object:
        fault = too_wild(given)
        if fault:
            raise ValueError(fault)
        return given

    @field_validator("currency")
    @classmethod
    def _is_that_of_every_amount(cls, currency: str | None, info: ValidationInfo) -> str | None:
        selector: Selector | None = info.data.get("selector")
        transform: Transform | None = info.data.get("transform")
        fault = (_band_fault(selector, currency) if selector else None) or (
            _transform_fault(transform, currency) if transform else None
        )
        if fault:
            raise ValueError(fault)
        return currency

    @field_validator("ends_at")
    @classmethod
    def _comes_after_the_start(cls, ends_at: ZonedInstant | None, info: ValidationInfo) -> ZonedInstant | None:
        schedule_at: ZonedInstant | None = info.data.get("schedule_at")
        if ends_at is not None and schedule_at is not None and ends_at <= schedule_at:
            raise ValueError("must lie after scheduleAt")
        return ends_at


def parse_rule(given: Mapping[str, object]) -> RuleInput:
    """The rule, or InvalidInputError that names every field at fault."""
    return parse(RuleInput, given, INVALID_RULE)


def canonical(rule: RuleInput) -> str:
    """What decides prices, in one spelling: two rules that price alike because they say the same are one text."""
    written = as_document(rule)
    deciding = {name: written[name] for name in ("selector", "transform", "currency", "onDrift")}
    return json.dumps(_ordered(deciding), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def version_hash(rule: RuleInput) -> str:
    return hashlib.sha256(canonical(rule).encode()).hexdigest()


def _ordered(value: object) -> object:
    """All lists of a rule are sets: which comes first decides nothing."""
    if isinstance(value, Mapping):
        return {name: _ordered(entry) for name, entry in cast("Mapping[str, object]", value).items()}
    if isinstance(value, list | tuple):
        entries = [_ordered(entry) for entry in cast("list[object]", value)]
        return sorted(entries, key=lambda entry: json.dumps(entry, sort_keys=True))
    return value


def _band_fault(selector: Selector, currency: str | None) -> str | None:
    named = {band.currency for band in bands_of(selector)}
    if len(named | {currency or band for band in named}) < 2:
        return None
    return "must be that of all prices in the selector: " + ", ".join(sorted(named))


def _transform_fault(transform: Transform, currency: str | None) -> str | None:
    if currency is None:
        return "is required where the transform names amounts" if names_amounts(transform) else None
    if transform.ending and with_ending(transform.ending, decimals_of(currency)) is None:
        return f"has {decimals_of(currency)} decimals, so that no price ends in {transform.ending}"
    return None
