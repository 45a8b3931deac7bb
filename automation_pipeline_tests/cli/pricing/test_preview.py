"""A preview from the command line: every price before and after, what is blocked and why, and what
to type next."""

import pytest

from automation_pipeline.pricing.commands import rules as preview
from automation_pipeline_tests.cli.pricing.workshop import Workshop
from automation_pipeline_tests.fakes.shop import FakeShop, shelf


def rows(said: str) -> list[list[str]]:
    """The table of prices, cell by cell."""
    cells = [[cell for cell in line.split("  ") if cell.strip()] for line in said.splitlines()]
    return [[cell.strip() for cell in row] for row in cells if row and row[0].strip().isdigit()]


def test_a_person_sees_every_price_and_may_approve_it(workshop: Workshop) -> None:
    workshop.rule(transform={"op": "percent", "value": -10, "floor": 950, "compareAt": "before"})
    ended = workshop.run("preview", "1")
    assert (ended.code, ended.err) == (0, "")
    assert rows(ended.out) == [
        ["1", "Mug [small]", "1/11", "MUG-S", "19.99 EUR", "17.99 EUR", "-10.0 %", "-2.00 EUR",
         "24.99 EUR -> 19.99 EUR"],
        ["2", "Mug [large]", "1/12", "MUG-L", "29.99 EUR", "26.99 EUR", "-10.0 %", "-3.00 EUR",
         "- -> 29.99 EUR"],
        ["3", "Mug", "1/13", "MUG-0", "10.00 EUR", "9.50 EUR", "-5.0 %", "-0.50 EUR", "- -> 10.00 EUR", "floor"],
        ["4", "Table", "2/21", "TABLE", "500.00 EUR", "450.00 EUR", "-10.0 %", "-50.00 EUR", "- -> 500.00 EUR",
         "below cost"],
    ]  # fmt: skip
    assert "Run 1 is a preview of rule 1, Summer [sale], version 1." in ended.out
    assert "below cost (1): The price lies below the cost." in ended.out
    assert "Picked: 5 = 4 to change + 1 left alone + 0 blocked." in ended.out
    assert "1 left alone: Its product is not on sale in the shop." in ended.out
    assert "Apply it, until " in ended.out
    assert ended.out.rstrip().endswith("`automation pricing runs apply 1`.")
    assert "\x1b" not in ended.out


def test_nothing_is_written_by_a_preview(workshop: Workshop, shop: FakeShop) -> None:
    before = shop.amounts()
    workshop.previewed()
    assert shop.amounts() == before
    assert shop.times("write") == 0


def test_what_the_guardrails_block_is_listed_with_the_failing_checks(workshop: Workshop) -> None:
    guardrails = {
        "maxPctDelta": 0.08,
        "floor": 1000,
        "ceiling": 40_000,
        "currency": "EUR",
        "autoApply": True,
    }
    workshop.json("policy", "set", "--file", "-", given=guardrails)
    workshop.rule()
    said = workshop.said("preview", "1")
    assert "Blocked by the project's guardrails: 4" in said
    assert (
        "1/13 MUG-0 10.00 EUR 9.00 EUR changes by 10 %, more than 8 %; below the floor of 10.00 EUR"
        in said
    )
    assert (
        "2/21 TABLE 500.00 EUR 450.00 EUR changes by 10 %, more than 8 %; above the ceiling of 400.00 EUR"
        in said
    )
    assert "Picked: 5 = 0 to change + 1 left alone + 4 blocked." in said
    assert said.endswith("There is nothing to apply.")


def test_where_the_project_wants_it_a_second_person_must_approve(workshop: Workshop) -> None:
    workshop.json("policy", "set", "--file", "-", given={"maxPctDelta": 0.5})
    workshop.rule()
    said = workshop.said("preview", "1")
    assert (
        "A second person must approve it, with `automation pricing runs approve 1`. Then apply it, until "
        in said
    )
    assert workshop.refused("runs", "apply", "1") == "The run must be approved first."
    assert (
        workshop.refused("runs", "approve", "1")
        == "The run must be approved by somebody else than its creator."
    )
    workshop.terminal.export(LOGNAME="bob")
    approved = workshop.said("runs", "approve", "1")
    assert approved.startswith("Run 1 is approved by cli:bob. Apply it, until ")
    assert workshop.json("runs", "apply", "1")["status"] == "QUEUED"


def test_a_disabled_rule_can_be_looked_at(workshop: Workshop) -> None:
    workshop.rule(enabled=False)
    assert "The rule is disabled: it can be applied once it is enabled." in workshop.said(
        "preview", "1"
    )
    assert workshop.refused("runs", "apply", "1") == "Pricing rule 1 is disabled: enable it first."


@pytest.mark.parametrize("guardrails", [{}, {"maxPctDelta": 0.05, "autoApply": True}])
def test_what_is_left_out_is_said(
    workshop: Workshop, shop: FakeShop, guardrails: dict[str, object]
) -> None:
    shop.put(*shelf(60))
    if guardrails:
        workshop.json("policy", "set", "--file", "-", given=guardrails)
    workshop.rule()
    of = f"{preview.SHOWN} of 64{' blocked ones' if guardrails else ''} are shown: --all shows every one."
    assert of in workshop.said("preview", "1")
    assert "are shown" not in workshop.said("preview", "1", "--all")
    rows_in = "blocked" if guardrails else "targets"
    some, everything = workshop.json("preview", "1"), workshop.json("preview", "1", "--all")
    assert (some["truncated"], everything["truncated"]) == (True, False)
    assert [len(some[rows_in]), len(everything[rows_in])] == [preview.SHOWN, 64]
    assert everything["run"]["matched"] == 65


def test_a_rule_that_is_not_there_has_no_preview(workshop: Workshop) -> None:
    assert workshop.refused("preview", "9") == "Pricing rule 9 not found."
    assert workshop.refused("preview", "0", code=2).startswith("Invalid value for 'rule_id': ")
