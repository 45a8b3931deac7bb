"""Tests of the commands for rules, previews, and guardrails."""

import json

import pytest

from automation_pipeline.pricing.commands.rendering import guardrail_text
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.cli.pricing.commands import TENTH_OFF, PricingCommands
from automation_pipeline_tests.fakes.shop import FakeShop, product_variants


def test_a_created_rule_is_shown_as_stored(commands: PricingCommands) -> None:
    created = commands.json(
        "rules", "create", "--file", "-", "--project", "summer", given=TENTH_OFF
    )
    assert (created["id"], created["version"], created["projectId"], created["createdBy"]) == (
        "1",
        1,
        "summer",
        "cli:ada",
    )
    assert created["transform"] | {"op": "percent", "value": -10} == created["transform"]
    assert commands.json("rules", "show", "1") == created
    shown = commands.text("rules", "show", "1")
    assert "rule 1 Summer [sale]" in shown
    assert 'picks {"all": true}' in shown
    assert 'does {"op": "percent", "value": -10}' in shown
    assert "`automation pricing preview 1`" in shown


def test_rules_are_listed_newest_first_and_can_be_filtered(commands: PricingCommands) -> None:
    for project, name, enabled in (
        ("a", "Winter", True),
        ("b", "Été", True),
        ("b", "Winter sale", False),
    ):
        commands.rule("--project", project, name=name, enabled=enabled)

    def listed(*options: str) -> list[str]:
        return [rule["id"] for rule in commands.json("rules", "list", *options)["rules"]]

    assert listed() == ["3", "2", "1"]
    assert listed("--project", "b") == ["3", "2"]
    assert listed("--enabled") == ["2", "1"]
    assert listed("--disabled") == ["3"]
    assert listed("--query", "winter") == ["3", "1"]
    assert listed("--limit", "1", "--offset", "1") == ["2"]
    assert commands.json("rules", "list", "--limit", "2")["more"] is True
    assert commands.json("rules", "list", "--limit", "3")["more"] is False
    assert commands.text("rules", "list", "--limit", "2").endswith(
        "There are more rows: --offset 2 shows the next page."
    )
    assert "There are more" not in commands.text("rules", "list")


@pytest.mark.parametrize(
    ("transform", "text"),
    [
        ({"op": "percent", "value": -12.5}, "percent -12.5 %"),
        ({"op": "absolute", "value": -200}, "absolute -2.00 EUR"),
        ({"op": "set", "value": 1299}, "set 12.99 EUR"),
        ({"op": "multiply", "factor": 1.2}, "times 1.2"),
        ({"op": "from_compare_at", "value": -20}, "from compare at -20 %"),
        ({"op": "from_compare_at"}, "from compare at"),
    ],
)
def test_the_list_shows_the_operation_of_each_rule(
    commands: PricingCommands, transform: dict[str, object], text: str
) -> None:
    commands.rule(transform=transform)
    assert f" {text}" in commands.text("rules", "list")
    assert text in commands.text("rules", "versions", "1")


def test_unused_fields_are_hidden_but_a_floor_of_zero_and_a_cleared_compare_at_are_shown(
    commands: PricingCommands,
) -> None:
    commands.rule(transform={"op": "percent", "value": -10, "floor": 0, "compareAt": None})
    assert 'does {"op": "percent", "value": -10, "compareAt": null, "floor": 0}' in commands.text(
        "rules", "show", "1"
    )


def test_changing_price_related_fields_creates_a_version(commands: PricingCommands) -> None:
    commands.rule()
    assert (
        commands.json("rules", "update", "1", "--file", "-", given={"name": "Autumn"})["version"]
        == 1
    )
    changed = commands.json(
        "rules", "update", "1", "--file", "-", given={"transform": {"op": "percent", "value": 5}}
    )
    assert (changed["version"], changed["name"]) == (2, "Autumn")
    versions = commands.json("rules", "versions", "1")["versions"]
    assert [(one["version"], one["rule"]["transform"]["value"]) for one in versions] == [
        (2, 5),
        (1, -10),
    ]
    for limit, more in (("1", True), ("2", False)):
        assert commands.json("rules", "versions", "1", "--limit", limit)["more"] is more
    assert "version 2" in commands.text(
        "rules", "update", "1", "--file", "-", given=b'{"enabled": false}'
    )
    assert "disabled" in commands.text("rules", "show", "1")


def test_a_promotion_shows_its_start_and_end(commands: PricingCommands) -> None:
    commands.rule(
        scheduleAt="2027-03-20T07:00:00Z", endsAt="2027-03-27T07:00:00Z", cooldownMinutes=30
    )
    shown = commands.text("rules", "show", "1")
    assert "starts 2027-03-20 07:00 UTC" in shown
    assert "ends 2027-03-27 07:00 UTC: its prices are rolled back then" in shown
    assert "rests 30 minutes after a run" in shown


def test_a_rule_is_deleted_after_a_confirmation(commands: PricingCommands) -> None:
    commands.rule()
    message = commands.refused("rules", "delete", "1", code=2)
    assert message == "Standard input is not a terminal: add --yes to delete pricing rule 1."
    refused = commands.run("rules", "delete", "1", given=b"n\n", is_interactive=True)
    assert refused.code == 130
    assert "Delete pricing rule 1, Summer [sale]?" in refused.err
    assert commands.json("rules", "show", "1")["deletedAt"] is None
    assert commands.json("rules", "delete", "1", "--yes") == {"id": "1", "deleted": True}
    assert commands.json("rules", "list")["rules"] == []
    assert commands.refused("rules", "show", "1") == "Pricing rule 1 not found."
    commands.rule()
    assert commands.text("rules", "delete", "2", "-y") == "Pricing rule 2 is deleted."


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"transform": {"op": "percent"}}, "transform.value: is required for percent"),
        (
            {"currency": "euro"},
            "currency: must be a currency of three capital letters, such as EUR",
        ),
        ({"colour": "red"}, "colour: is not a known field"),
        ({"name": ""}, "name: must have at least 1 character"),
    ],
)
def test_every_rule_error_names_its_field(
    commands: PricingCommands, fields: dict[str, object], fault: str
) -> None:
    given = json.dumps(TENTH_OFF | fields).encode()
    message = commands.refused("rules", "create", "--file", "-", code=2, given=given)
    assert message == f"Invalid pricing rule data: {fault}."
    assert commands.json("rules", "list")["rules"] == []


def test_a_project_name_is_validated(commands: PricingCommands) -> None:
    given = json.dumps(TENTH_OFF).encode()
    message = commands.refused(
        "rules", "create", "--file", "-", "--project", "a b", code=2, given=given
    )
    assert message.startswith("Invalid request: project: must be 1 to 100 of the letters")


def test_a_project_without_guardrails_is_shown(commands: PricingCommands) -> None:
    assert commands.json("policy", "show") == {"project": "default", "policy": None}
    result = commands.text("policy", "show", "--project", "summer")
    assert result == "project summer guardrails none: its runs need no approval"
    assert commands.refused("policy", "remove") == "Project default has no pricing policy."


def test_guardrails_are_set_shown_and_removed(commands: PricingCommands) -> None:
    given = {
        "maxPctDelta": 0.125, "dailyChangeBudgetPct": 0.3, "floor": 100, "ceiling": 100_000, "currency": "EUR",
        "floors": {"TABLE": 20_000}, "ceilings": {"MUG-S": 5000}, "autoApply": True,
    }  # fmt: skip
    stored = commands.json("policy", "set", "--file", "-", given=given)
    assert stored["policy"] == given
    assert commands.json("policy", "show") == stored
    assert commands.json("policy", "show", "--project", "other")["policy"] is None
    assert commands.text("policy", "show") == (
        "project default approval not needed largest change 12.5 % of the price change per day 30 % of the price "
        "floor 1.00 EUR ceiling 1000.00 EUR floors TABLE 200.00 EUR ceilings MUG-S 50.00 EUR"
    )
    assert commands.text("policy", "remove") == "Project default no longer has guardrails."
    assert commands.json("policy", "show")["policy"] is None
    commands.json("policy", "set", "--file", "-", given={})
    assert commands.json("policy", "remove") == {"project": "default", "removed": True}


def test_every_policy_error_names_its_field(commands: PricingCommands) -> None:
    message = commands.refused("policy", "set", "--file", "-", code=2, given=b'{"maxPctDelta": 2}')
    assert message == "Invalid pricing policy data: maxPctDelta: must be at most 1."


@every_case(
    ("check", "text"),
    [
        ({"name": "maxPctDelta", "deltaPct": 0.1, "limit": 0.08}, "changes by 10 %, more than 8 %"),
        (
            {"name": "maxPctDelta", "deltaPct": 0.333333, "limit": 0.125},
            "changes by 33.33 %, more than 12.5 %",
        ),
        ({"name": "floor", "floor": 1000, "proposedAmount": 900}, "below the floor of 10.00 EUR"),
        (
            {"name": "ceiling", "ceiling": 1000, "proposedAmount": 1900},
            "above the ceiling of 10.00 EUR",
        ),
        (
            {"name": "dailyBudget", "deltaPct": 0.1, "used": 0.25, "limit": 0.3, "remaining": 0.05},
            "changes by 10 %, and 5 % of 30 % are left today",
        ),
        (
            {"name": "currency", "currency": "EUR", "policyCurrency": "USD"},
            "the floor and ceiling are in USD, the price is in EUR",
        ),
        ({"name": "maxPctDelta"}, "maxPctDelta"),
        ({"name": "phaseOfTheMoon", "phase": "full"}, "phaseOfTheMoon"),
    ],
)
def test_a_guardrail_check_is_described_in_words(check: dict[str, object], text: str) -> None:
    assert guardrail_text({"ok": False, **check}, "EUR") == text


def rows(text: str) -> list[list[str]]:
    """Return the cells of the price table."""
    cells = [[cell for cell in line.split("  ") if cell.strip()] for line in text.splitlines()]
    return [[cell.strip() for cell in row] for row in cells if row and row[0].strip().isdigit()]


def test_a_preview_shows_every_price_and_can_be_approved(commands: PricingCommands) -> None:
    commands.rule(transform={"op": "percent", "value": -10, "floor": 950, "compareAt": "before"})
    ended = commands.run("preview", "1")
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
    assert "Picked: 5 = 4 to change + 1 skipped + 0 blocked." in ended.out
    assert "1 skipped: Its product is not on sale in the shop." in ended.out
    assert "Apply it, until " in ended.out
    assert ended.out.rstrip().endswith("`automation pricing runs apply 1`.")
    assert "\x1b" not in ended.out


def test_a_preview_writes_no_prices(commands: PricingCommands, shop: FakeShop) -> None:
    before = shop.amounts()
    commands.previewed()
    assert shop.amounts() == before
    assert shop.call_count("write") == 0


def test_prices_blocked_by_guardrails_are_listed_with_the_failed_checks(
    commands: PricingCommands,
) -> None:
    guardrails = {
        "maxPctDelta": 0.08,
        "floor": 1000,
        "ceiling": 40_000,
        "currency": "EUR",
        "autoApply": True,
    }
    commands.json("policy", "set", "--file", "-", given=guardrails)
    commands.rule()
    result = commands.text("preview", "1")
    assert "Blocked by the project's guardrails: 4" in result
    assert (
        "1/13 MUG-0 10.00 EUR 9.00 EUR changes by 10 %, more than 8 %; below the floor of 10.00 EUR"
        in result
    )
    assert (
        "2/21 TABLE 500.00 EUR 450.00 EUR changes by 10 %, more than 8 %; above the ceiling of 400.00 EUR"
        in result
    )
    assert "Picked: 5 = 0 to change + 1 skipped + 4 blocked." in result
    assert result.endswith("There is nothing to apply.")


def test_a_second_person_must_approve_if_the_project_requires_it(commands: PricingCommands) -> None:
    commands.json("policy", "set", "--file", "-", given={"maxPctDelta": 0.5})
    commands.rule()
    result = commands.text("preview", "1")
    assert (
        "A second person must approve it, with `automation pricing runs approve 1`. Then apply it, until "
        in result
    )
    assert commands.refused("runs", "apply", "1") == "The run must be approved first."
    assert (
        commands.refused("runs", "approve", "1")
        == "The run must be approved by a person other than its creator."
    )
    commands.terminal.export(LOGNAME="bob")
    approved = commands.text("runs", "approve", "1")
    assert approved.startswith("Run 1 is approved by cli:bob. Apply it, until ")
    assert commands.json("runs", "apply", "1")["status"] == "QUEUED"


def test_a_disabled_rule_can_be_previewed(commands: PricingCommands) -> None:
    commands.rule(enabled=False)
    assert "The rule is disabled: it can be applied once it is enabled." in commands.text(
        "preview", "1"
    )
    assert commands.refused("runs", "apply", "1") == "Pricing rule 1 is disabled: enable it first."


@pytest.mark.parametrize("guardrails", [{}, {"maxPctDelta": 0.05, "autoApply": True}])
def test_omitted_rows_are_counted(
    commands: PricingCommands, shop: FakeShop, guardrails: dict[str, object]
) -> None:
    shop.add(*product_variants(60))
    if guardrails:
        commands.json("policy", "set", "--file", "-", given=guardrails)
    commands.rule()
    of = f"50 of 64{' blocked ones' if guardrails else ''} are shown: --all shows every one."
    assert of in commands.text("preview", "1")
    assert "are shown" not in commands.text("preview", "1", "--all")
    rows_in = "blocked" if guardrails else "targets"
    some, everything = commands.json("preview", "1"), commands.json("preview", "1", "--all")
    assert (some["truncated"], everything["truncated"]) == (True, False)
    assert [len(some[rows_in]), len(everything[rows_in])] == [50, 64]
    assert everything["run"]["matched"] == 65


def test_an_unknown_rule_cannot_be_previewed(commands: PricingCommands) -> None:
    assert commands.refused("preview", "9") == "Pricing rule 9 not found."
    assert commands.refused("preview", "0", code=2).startswith("Invalid value for 'rule_id': ")
