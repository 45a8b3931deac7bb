"""A draft gives back what was put in, product by product, whatever came between."""

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.pricing import planning as drafts
from automation_pipeline.pricing.planning import Draft
from automation_pipeline.pricing.rules.evaluation import plan_target, price
from automation_pipeline_tests.fakes.shop import variant
from automation_pipeline_tests.pricing.rules.rules import rule

TENTH_OFF = rule({"op": "percent", "value": -10})
products = st.lists(st.integers(0, 3), max_size=20)


def drafted(draft: Draft, *amounts: int | None, products: list[int] | None = None) -> None:
    its = products or [1] * len(amounts)
    told = [
        variant(str(number), str(product), amount)
        for number, (amount, product) in enumerate(zip(amounts, its, strict=True))
    ]
    draft.add(plan_target(price(TENTH_OFF, one), None, Decimal(0)) for one in draft.new(told))


@given(products)
def test_products_stand_together_and_keep_their_order(its: list[int]) -> None:
    with Draft() as draft:
        drafted(draft, *[1000] * len(its), products=its)
        kept = [(str(row["product_id"]), int(str(row["variant_id"]))) for row in draft.targets()]
    order = list(dict.fromkeys(str(product) for product in its))
    assert kept == sorted(kept, key=lambda row: (order.index(row[0]), row[1]))
    assert len(kept) == len(its)


def test_money_is_exact_however_large() -> None:
    with Draft() as draft:
        drafted(draft, 10**12, 999_999_999_999)
        kept = [row["after_json"] for row in draft.targets()]
    assert kept == [
        {"unit_amount": 900_000_000_000, "currency": "EUR", "compare_at": None},
        {"unit_amount": 899_999_999_999, "currency": "EUR", "compare_at": None},
    ]


def test_more_than_memory_is_to_hold_goes_to_a_file() -> None:
    many = drafts._IN_MEMORY_BYTES // 400
    with Draft() as draft:
        drafted(draft, *[1000] * many)
        assert [row["variant_id"] for row in draft.targets()] == [
            str(number) for number in range(many)
        ]


def test_what_needs_no_change_is_counted_and_not_kept() -> None:
    with Draft() as draft:
        drafted(draft, 1, None, 1000)
        assert [row["reason"] for row in draft.skipped()] == ["no_price"]
        assert (draft.tally.skipped, draft.tally.targets, draft.tally.catalogue) == (2, 1, 3)


def test_a_variant_is_new_once() -> None:
    with Draft() as draft:
        assert len(draft.new([variant("1"), variant("1"), variant("2")])) == 2
        assert draft.new([variant("2")]) == []
