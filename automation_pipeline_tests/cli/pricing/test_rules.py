"""Rules from the command line: stored, listed, changed in versions, deleted; what is wrong is one
sentence."""

import json

import pytest

from automation_pipeline_tests.cli.pricing.workshop import TENTH_OFF, Workshop


def test_a_rule_is_stored_and_shown_as_it_is_stored(workshop: Workshop) -> None:
    made = workshop.json("rules", "create", "--file", "-", "--project", "summer", given=TENTH_OFF)
    assert (made["id"], made["version"], made["projectId"], made["createdBy"]) == (
        "1",
        1,
        "summer",
        "cli:ada",
    )
    assert made["transform"] | {"op": "percent", "value": -10} == made["transform"]
    assert workshop.json("rules", "show", "1") == made
    shown = workshop.said("rules", "show", "1")
    assert "rule 1 Summer [sale]" in shown
    assert 'picks {"all": true}' in shown
    assert 'does {"op": "percent", "value": -10}' in shown
    assert "`automation pricing preview 1`" in shown


def test_rules_are_listed_newest_first_and_can_be_narrowed(workshop: Workshop) -> None:
    for project, name, enabled in (
        ("a", "Winter", True),
        ("b", "Été", True),
        ("b", "Winter sale", False),
    ):
        workshop.rule("--project", project, name=name, enabled=enabled)

    def listed(*options: str) -> list[str]:
        return [rule["id"] for rule in workshop.json("rules", "list", *options)["rules"]]

    assert listed() == ["3", "2", "1"]
    assert listed("--project", "b") == ["3", "2"]
    assert listed("--enabled") == ["2", "1"]
    assert listed("--disabled") == ["3"]
    assert listed("--query", "winter") == ["3", "1"]
    assert listed("--limit", "1", "--offset", "1") == ["2"]
    assert workshop.json("rules", "list", "--limit", "2")["more"] is True
    assert workshop.json("rules", "list", "--limit", "3")["more"] is False
    assert workshop.said("rules", "list", "--limit", "2").endswith(
        "There are more: --offset 2 shows the next."
    )
    assert "There are more" not in workshop.said("rules", "list")


@pytest.mark.parametrize(
    ("transform", "words"),
    [
        ({"op": "percent", "value": -12.5}, "percent -12.5 %"),
        ({"op": "absolute", "value": -200}, "absolute -2.00 EUR"),
        ({"op": "set", "value": 1299}, "set 12.99 EUR"),
        ({"op": "multiply", "factor": 1.2}, "times 1.2"),
        ({"op": "from_compare_at", "value": -20}, "from compare at -20 %"),
        ({"op": "from_compare_at"}, "from compare at"),
    ],
)
def test_the_list_says_what_each_does(
    workshop: Workshop, transform: dict[str, object], words: str
) -> None:
    workshop.rule(transform=transform)
    assert f" {words}" in workshop.said("rules", "list")
    assert words in workshop.said("rules", "versions", "1")


def test_what_is_idle_is_not_told_but_a_floor_of_zero_and_a_cleared_compare_at_are(
    workshop: Workshop,
) -> None:
    workshop.rule(transform={"op": "percent", "value": -10, "floor": 0, "compareAt": None})
    assert 'does {"op": "percent", "value": -10, "compareAt": null, "floor": 0}' in workshop.said(
        "rules", "show", "1"
    )


def test_a_change_of_what_decides_prices_makes_a_version(workshop: Workshop) -> None:
    workshop.rule()
    assert (
        workshop.json("rules", "update", "1", "--file", "-", given={"name": "Autumn"})["version"]
        == 1
    )
    changed = workshop.json(
        "rules", "update", "1", "--file", "-", given={"transform": {"op": "percent", "value": 5}}
    )
    assert (changed["version"], changed["name"]) == (2, "Autumn")
    versions = workshop.json("rules", "versions", "1")["versions"]
    assert [(one["version"], one["rule"]["transform"]["value"]) for one in versions] == [
        (2, 5),
        (1, -10),
    ]
    assert "version 2" in workshop.said(
        "rules", "update", "1", "--file", "-", given=b'{"enabled": false}'
    )
    assert "disabled" in workshop.said("rules", "show", "1")


def test_a_promotion_tells_when_it_starts_and_ends(workshop: Workshop) -> None:
    workshop.rule(
        scheduleAt="2027-03-20T07:00:00Z", endsAt="2027-03-27T07:00:00Z", cooldownMinutes=30
    )
    shown = workshop.said("rules", "show", "1")
    assert "starts 2027-03-20 07:00 UTC" in shown
    assert "ends 2027-03-27 07:00 UTC: its prices are taken back then" in shown
    assert "rests 30 minutes after a run" in shown


def test_a_rule_is_deleted_when_somebody_says_so(workshop: Workshop) -> None:
    workshop.rule()
    said = workshop.refused("rules", "delete", "1", code=2)
    assert said == "Standard input is no terminal: add --yes to delete pricing rule 1."
    refused = workshop.run("rules", "delete", "1", given=b"n\n", somebody=True)
    assert refused.code == 130
    assert "Delete pricing rule 1, Summer [sale]?" in refused.err
    assert workshop.json("rules", "show", "1")["deletedAt"] is None
    assert workshop.json("rules", "delete", "1", "--yes") == {"id": "1", "deleted": True}
    assert workshop.json("rules", "list")["rules"] == []
    assert workshop.refused("rules", "show", "1") == "Pricing rule 1 not found."
    workshop.rule()
    assert workshop.said("rules", "delete", "2", "-y") == "Pricing rule 2 is deleted."


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
def test_every_fault_is_told_by_its_field(
    workshop: Workshop, fields: dict[str, object], fault: str
) -> None:
    given = json.dumps(TENTH_OFF | fields).encode()
    said = workshop.refused("rules", "create", "--file", "-", code=2, given=given)
    assert said == f"Invalid pricing rule data: {fault}."
    assert workshop.json("rules", "list")["rules"] == []


def test_a_project_has_a_plain_name(workshop: Workshop) -> None:
    given = json.dumps(TENTH_OFF).encode()
    said = workshop.refused(
        "rules", "create", "--file", "-", "--project", "a b", code=2, given=given
    )
    assert said.startswith("Invalid request: project: must be 1 to 100 of the letters")
