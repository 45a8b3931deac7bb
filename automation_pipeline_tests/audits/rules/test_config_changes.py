"""Changes of a configuration: what is not named stays, null clears, steps stay 1 to n."""

from dataclasses import replace

import pytest

from automation_pipeline.audits.models.configs import (
    MAX_STEPS,
    changed_config,
    changed_step,
    config_document,
    new_step,
    parse_config,
)
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline_tests.audits.configurations import FULL, document, step_document
from automation_pipeline_tests.tables import every_case

STORED = parse_config(FULL)
FIRST = STORED.steps[0]


def step_without(*fields: str, **others: object) -> dict[str, object]:
    return {
        name: value for name, value in (step_document(9) | others).items() if name not in fields
    }


@every_case(
    ("given", "changed"),
    [
        ({}, STORED),
        ({"name": " Other "}, replace(STORED, name="Other")),
        ({"description": None}, replace(STORED, description=None)),
        ({"systemPrompt": None}, replace(STORED, system_prompt=None)),
        ({"systemPrompt": " "}, replace(STORED, system_prompt=None)),
        ({"createdBy": None}, replace(STORED, created_by=None)),
        (
            {"isActive": False, "runAutomatically": False},
            replace(STORED, is_active=False, run_automatically=False),
        ),
        (
            {"steps": [step_document(1)]},
            replace(STORED, steps=parse_config(document(steps=1)).steps),
        ),
        (
            {"auditSteps": [step_document(1)]},
            replace(STORED, steps=parse_config(document(steps=1)).steps),
        ),
        ({"id": "3", "createdAt": "x", "stepsCount": 9, "totalWeight": 1, "stats": None}, STORED),
        (config_document(STORED), STORED),
    ],
)
def test_only_what_is_named_changes(given: dict[str, object], changed: object) -> None:
    assert changed_config(STORED, given) == changed


@every_case(
    ("given", "field"),
    [
        ({"name": None}, "name"),
        ({"name": ""}, "name"),
        ({"isActive": None}, "isActive"),
        ({"steps": None}, "steps"),
        ({"steps": []}, "steps"),
        ({"steps": [step_document(1, weight=0)]}, "steps.0.weight"),
        ({"steps": [step_document(2)]}, "steps"),
        ({"auditSteps": [step_document(1)], "steps": [step_document(1)]}, "auditSteps"),
        ({"nmae": "x"}, "nmae"),
    ],
)
def test_a_wrong_change_names_the_field(given: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidInputError, match="Invalid update audit config input") as refused:
        changed_config(STORED, given)
    assert list(dict(refused.value.fields)) == [field]


def test_positions_given_twice_are_said_to_be_so() -> None:
    for change in (
        lambda given: changed_config(STORED, given),
        lambda given: parse_config(document() | given),
    ):
        with pytest.raises(InvalidInputError, match=r"^Step positions must be unique$") as refused:
            change({"steps": [step_document(1), step_document(1)]})
        assert refused.value.fields[0] == (
            "steps",
            "Step positions must be unique: 1 given more than once",
        )


@every_case(
    "given", [step_document(3), step_without("position"), step_document(3) | {"position": None}]
)
def test_a_new_step_goes_behind_the_others(given: dict[str, object]) -> None:
    step = new_step(STORED, given)
    assert step.position == 3
    assert (
        parse_config(config_document(replace(STORED, steps=(*STORED.steps, step)))).steps[2] == step
    )


@every_case(
    ("given", "field", "complaint"),
    [
        (step_document(1), "position", "Position 1 is already taken. Available positions: 3"),
        (step_document(9), "position", "Position 9 would leave a gap. Available positions: 3"),
        (step_document(3, name=" "), "name", "Invalid audit step input"),
        (step_document(1, weight=11), "weight", "Invalid audit step input"),
        (step_without("prompt", "position"), "prompt", "Invalid audit step input"),
        (step_document(3) | {"position": "3"}, "position", "Invalid audit step input"),
        (step_document(3) | {"audit_config_id": 3}, "audit_config_id", "Invalid audit step input"),
    ],
)
def test_a_step_that_cannot_be_is_refused(
    given: dict[str, object], field: str, complaint: str
) -> None:
    with pytest.raises(InvalidInputError) as refused:
        new_step(STORED, given)
    assert str(refused.value) == complaint
    assert list(dict(refused.value.fields)) == [field]


def test_there_are_never_more_steps_than_a_file_may_have() -> None:
    full = parse_config(document(steps=MAX_STEPS))
    with pytest.raises(InvalidInputError, match="at most 100 steps"):
        new_step(full, step_without("position"))


@every_case(
    ("given", "changed"),
    [
        ({}, FIRST),
        ({"id": "77", "position": 1}, FIRST),
        ({"description": None, "weight": 3}, replace(FIRST, description=None, weight=3)),
        ({"keywords": []}, replace(FIRST, keywords=())),
        ({"position": 3}, replace(FIRST, position=3)),
    ],
)
def test_only_what_is_named_of_a_step_changes(given: dict[str, object], changed: object) -> None:
    assert changed_step(STORED, FIRST, given) == changed


@every_case(
    ("position", "why"),
    [(2, "is already taken"), (4, "would leave a gap"), (0, "would leave a gap")],
)
def test_a_step_does_not_move_where_it_cannot(position: int, why: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        changed_step(STORED, FIRST, {"position": position})
    assert str(refused.value) == f"Position {position} {why}. Available positions: 3"
