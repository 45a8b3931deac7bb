"""Guardrails from the command line: set, shown in words, removed."""

from automation_pipeline_tests.cli.pricing.workshop import Workshop


def test_a_project_without_guardrails_says_so(workshop: Workshop) -> None:
    assert workshop.json("policy", "show") == {"project": "default", "policy": None}
    said = workshop.said("policy", "show", "--project", "summer")
    assert said == "project summer guardrails none: its runs are applied without an approval"
    assert workshop.refused("policy", "remove") == "Project default has no pricing policy."


def test_guardrails_are_set_shown_and_removed(workshop: Workshop) -> None:
    given = {
        "maxPctDelta": 0.125, "dailyChangeBudgetPct": 0.3, "floor": 100, "ceiling": 100_000, "currency": "EUR",
        "floors": {"TABLE": 20_000}, "ceilings": {"MUG-S": 5000}, "autoApply": True,
    }  # fmt: skip
    stored = workshop.json("policy", "set", "--file", "-", given=given)
    assert stored["policy"] == given
    assert workshop.json("policy", "show") == stored
    assert workshop.json("policy", "show", "--project", "other")["policy"] is None
    assert workshop.said("policy", "show") == (
        "project default approval not needed largest change 12.5 % of the price change in a day 30 % of the price "
        "floor 1.00 EUR ceiling 1000.00 EUR floors TABLE 200.00 EUR ceilings MUG-S 50.00 EUR"
    )
    assert workshop.said("policy", "remove") == "Project default has no guardrails any more."
    assert workshop.json("policy", "show")["policy"] is None
    workshop.json("policy", "set", "--file", "-", given={})
    assert workshop.json("policy", "remove") == {"project": "default", "removed": True}


def test_a_fault_is_told_by_its_field(workshop: Workshop) -> None:
    said = workshop.refused("policy", "set", "--file", "-", code=2, given=b'{"maxPctDelta": 2}')
    assert said == "Invalid pricing policy data: maxPctDelta: must be at most 1."
