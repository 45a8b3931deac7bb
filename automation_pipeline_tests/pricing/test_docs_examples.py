"""The examples, terms and numbers in docs/pricing.md match the code."""

import json
import re
from collections.abc import Iterable
from pathlib import Path

from automation_pipeline.clients.shop import COSTS, PAGE_SIZE
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.pricing.models.rules import (
    MAX_COOLDOWN_MINUTES,
    MAX_DEPTH,
    MAX_PARTS,
    Comparison,
    OnDrift,
    Policy,
    RuleInput,
    Selector,
    parse_policy,
    parse_rule,
)
from automation_pipeline.pricing.models.runs import RULE_RUN, RULE_TARGET, TargetState
from automation_pipeline.pricing.models.shop import (
    MAX_PRICES_PER_READ,
    MAX_PRICES_PER_WRITE,
    FailureKind,
    Price,
    ShopOptions,
    VariantField,
    parse_amount,
    price_text,
)
from automation_pipeline.pricing.models.transforms import (
    MAX_NAMES,
    Operation,
    PriceOutcome,
    Round,
    Skip,
    Transform,
    Warn,
    names_amounts,
)
from automation_pipeline.pricing.queries.targets import MAX_PRODUCTS, MAX_TARGETS
from automation_pipeline.pricing.rules.evaluation import price
from automation_pipeline.pricing.rules.monitoring import KEPT_FOR, MismatchSeverity
from automation_pipeline.pricing.rules.runs import PREVIEW_LIFETIME
from automation_pipeline.pricing.worker import LONGEST_READ_SECONDS
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.pricing.rules.rules import rule, selector, variant

PAGE = (Path(__file__).parents[2] / "docs" / "pricing.md").read_text(encoding="utf-8")
FACTS = {"cost": "cost", "compareAt": "compare_at"}


def section(heading: str) -> str:
    """The text between this heading and the next one."""
    return re.split(r"^#+ ", PAGE.split(f"# {heading}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


def rows_under(heading: str) -> list[list[str]]:
    """The body rows of the tables in the section, without code marks."""
    lines = [line for line in section(heading).splitlines() if line.startswith("|")]
    cells = [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]
    return [
        row
        for row, below in zip(cells, [*cells[1:], []], strict=True)
        if not _is_rule(row) and not _is_rule(below)
    ]


def _is_rule(row: list[str]) -> bool:
    return bool(row) and all(cell.strip("-") == "" for cell in row)


def described(outcome: PriceOutcome) -> tuple[str, str, str]:
    """The outcome in the wording of the page."""
    if outcome.after is None:
        return str(outcome.skipped), "", ""
    after, currency = outcome.after, outcome.after.currency
    struck = "none" if after.compare_at is None else price_text(after.compare_at, currency)
    moved = outcome.trace.constraints.applied if outcome.trace else ()
    return (
        price_text(after.unit_amount, currency),
        struck if outcome.writes_compare_at else "",
        ", ".join([*moved, *outcome.warnings]),
    )


def read(text: str) -> Price:
    amount, currency = text.split()
    return Price(parse_amount(amount, currency), currency)


@every_case("row", rows_under("Worked examples"), ids=lambda row: f"{row[0]} {row[2]}"[:60])
def test_every_documented_example_has_its_documented_result(row: list[str]) -> None:
    start, known, transform, *promised = row
    before = read(start)
    facts = {FACTS[name]: value for name, value in json.loads(known or "{}").items()}
    found = variant(before.unit_amount, currency=before.currency, **facts)
    does = json.loads(transform)
    currency = before.currency if names_amounts(Transform.model_validate(does)) else None
    assert described(price(rule(does, currency=currency), found)) == tuple(promised)


def test_every_operation_and_option_has_an_example() -> None:
    shown = [json.loads(row[2]) for row in rows_under("Worked examples")]
    assert {one["op"] for one in shown} == set(Operation)
    assert {name for one in shown for name in one} == {
        field.alias or name for name, field in Transform.model_fields.items()
    }


@every_case(
    "document", [json.loads(text) for text in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)]
)
def test_every_documented_rule_and_policy_is_valid(document: dict[str, object]) -> None:
    kept = parse_rule(document) if "selector" in document else parse_policy(document)
    assert isinstance(kept, RuleInput | Policy)


def test_every_selector_kind_is_documented_and_valid() -> None:
    column = [row[0] for row in rows_under("Which variants") if row[0].startswith("{")]
    whole = [
        json.loads(text) for cell in column for text in re.split(r"`, `", cell) if "..." not in text
    ]
    assert [selector(one) for one in whole]
    named = {name for cell in column for name in re.findall(r'(?:^|`)\{"(\w+)":', cell)}
    assert named == {field.alias or name for name, field in Selector.model_fields.items()} - {
        "op",
        "value",
    }


def test_each_selector_field_is_documented_with_its_comparisons() -> None:
    by_field = {
        name: {op for op in Comparison if f"`{op}`" in f"`{row[1]}`"}
        for row in rows_under("Which variants")
        if not row[0].startswith("{")
        for name in row[0].replace("`", "").split(", ")
    }
    assert set(by_field) == set(VariantField)
    for field, allowed in by_field.items():
        accepted = {op for op in Comparison if _accepts(field, op)}
        assert accepted == allowed, field


def _accepts(field: str, op: Comparison) -> bool:
    value: object = {VariantField.INVENTORY: 1, VariantField.ON_SALE: True}.get(
        VariantField(field), "a"
    )
    try:
        selector({"field": field, "op": op, "value": [value] if op is Comparison.IN else value})
    except InvalidInputError:
        return False
    return True


@every_case(
    "words",
    [Skip, Warn, FailureKind, MismatchSeverity, Round, OnDrift],
    ids=lambda words: words.__name__,
)
def test_every_reason_severity_and_option_is_documented(words: Iterable[str]) -> None:
    assert [word for word in words if word not in PAGE] == []


def test_every_field_of_rules_transforms_and_policies_is_documented() -> None:
    names = [
        field.alias or name
        for model in (RuleInput, Transform, Policy)
        for name, field in model.model_fields.items()
    ]
    assert [name for name in names if f"`{name}`" not in PAGE] == []


def test_the_state_diagram_has_exactly_the_legal_transitions() -> None:
    drawn = set(re.findall(r"^ +(\w+) --> (\w+):", section("States"), re.MULTILINE))
    names = dict(re.findall(r'state "(\w+)" as (t\d)', section("States")))
    of_targets = {
        (names[str(frm)], names[str(to)]) for frm, tos in RULE_TARGET.moves.items() for to in tos
    }
    of_runs = {(str(frm), str(to)) for frm, tos in RULE_RUN.moves.items() for to in tos}
    assert drawn == of_runs | of_targets
    assert set(names) == set(TargetState)


def test_the_documented_limits_equal_those_of_the_code() -> None:
    text = " ".join(PAGE.split())
    limits = (
        f"up to {MAX_DEPTH} levels deep, with up to {MAX_PARTS:,} parts and {MAX_NAMES:,} names",
        f"up to {MAX_COOLDOWN_MINUTES}. `--force` ignores it",
        f"up to {MAX_PRODUCTS} products or {MAX_TARGETS} variants per call",
        f"if the last read is more than {LONGEST_READ_SECONDS:g} seconds old",
        f"A worker waits for at most {ShopOptions().longest_pause_seconds:g} s.",
        f"prices of *n* variants, {MAX_PRICES_PER_READ} at most",
        f"the variants of one product, {MAX_PRICES_PER_WRITE} at most",
        f"acknowledged, or {KEPT_FOR.days} days old",
        f"older than {PREVIEW_LIFETIME.seconds // 60} minutes",
    )
    assert [limit for limit in limits if limit not in text] == []


def test_the_documented_call_costs_equal_those_of_the_client() -> None:
    pages, variants, products = 5000 // PAGE_SIZE, 5000, 1000
    applying = (
        COSTS.each_price * variants
        + COSTS.write * products
        + COSTS.prices * max(variants / 250, products / 50)
    )
    for points in (COSTS.page, pages * COSTS.page, applying):
        assert f" {points:g} " in PAGE.replace(".", " ").replace(",", " ")
