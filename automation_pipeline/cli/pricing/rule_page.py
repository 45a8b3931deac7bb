"""Pricing rules on a screen."""

import json
from collections.abc import Iterable, Mapping
from typing import cast

from automation_pipeline.cli.fitted_tables import print_fitted_table
from automation_pipeline.cli.listing import minute, say
from automation_pipeline.cli.output import print_facts
from automation_pipeline.pricing.domain.field_rules import UNTOUCHED
from automation_pipeline.pricing.domain.money import in_words
from automation_pipeline.pricing.domain.pricing_rule import PricingRule, RuleVersion, input_document
from automation_pipeline.pricing.domain.transform import IN_MINOR_UNITS, Operation


def print_rules(rules: Iterable[PricingRule]) -> None:
    print_fitted_table(
        ("id", "name", "project", "state", "version", "does", "starts (UTC)", "ends (UTC)"),
        (
            (r.id, r.name, r.project_id, _state(r), r.version, _transform(input_document(r)), minute(r.schedule_at),
             minute(r.ends_at))
            for r in rules
        ),
        texts={"name", "project", "does"},
    )  # fmt: skip


def print_rule(rule: PricingRule) -> None:
    written = input_document(rule)
    print_facts(
        {
            "rule": f"{rule.id}  {rule.name}",
            "description": rule.description,
            "project": rule.project_id,
            "state": f"{_state(rule)}, version {rule.version}",
            "picks": _json(written["selector"]),
            "does": _json(_told(written["transform"])),
            "currency": rule.currency or "any; each variant's own",
            "starts": rule.schedule_at and f"{minute(rule.schedule_at)} UTC",
            "ends": rule.ends_at and f"{minute(rule.ends_at)} UTC: its prices are taken back then",
            "on drift": _on_drift(rule),
            "rests": f"{rule.cooldown_minutes} minutes after a run" if rule.cooldown_minutes else None,
            "made": f"{minute(rule.created_at)} UTC by {rule.created_by}",
            "changed": None if rule.updated_at == rule.created_at else f"{minute(rule.updated_at)} UTC",
        }
    )
    if rule.deleted_at is None:
        say(f"See what it would do: `automation pricing preview {rule.id}`.")


def print_versions(versions: Iterable[RuleVersion]) -> None:
    print_fitted_table(
        ("version", "from (UTC)", "by", "picks", "does"),
        (
            (v.version, minute(v.created_at), v.created_by, _json(v.rule.get("selector")), _transform(v.rule))
            for v in versions
        ),
        texts={"by", "picks", "does"},
    )


def _state(rule: PricingRule) -> str:
    if rule.deleted_at is not None:
        return "deleted"
    return "enabled" if rule.enabled else "disabled"


def _on_drift(rule: PricingRule) -> str:
    return f"{rule.on_drift} a price that is no longer the one that was previewed"


def _transform(rule: Mapping[str, object]) -> str:
    """In a word or two, for a table: `show` tells the rest."""
    transform = cast("Mapping[str, object]", rule.get("transform") or {})
    op, value, currency = str(transform.get("op")), transform.get("value"), rule.get("currency")
    if op == Operation.MULTIPLY:
        return f"times {transform.get('factor')}"
    if value is None:
        return op.replace("_", " ")
    if op in IN_MINOR_UNITS and currency:
        return f"{op} {in_words(int(str(value)), str(currency))}"
    return f"{op.replace('_', ' ')} {value} %"


def _told(transform: object) -> Mapping[str, object]:
    """Without what is not used. A compare-at price of null is cleared."""
    given = cast("Mapping[str, object]", transform)
    return {name: value for name, value in given.items() if not _is_idle(name, value)}


def _is_idle(name: str, value: object) -> bool:
    if value is None:
        return name != "compareAt"
    return value is False or value in {UNTOUCHED, "none"}


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
