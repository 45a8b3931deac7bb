"""Configuration documents: parsed, changed, and refused field by field."""

from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.audits.models.configs import (
    INVALID_CONFIG,
    MAX_STEPS,
    AuditConfig,
    AuditStep,
    Severity,
    changed_config,
    changed_step,
    check_order,
    config_document,
    fingerprint,
    free_positions,
    new_step,
    parse_config,
    require_free_position,
)
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline_tests.audits.configurations import FULL, document, step_document
from automation_pipeline_tests.cases import every_case

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
def test_a_patch_changes_only_the_named_fields(given: dict[str, object], changed: object) -> None:
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
def test_an_invalid_change_names_the_field(given: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidInputError, match="Invalid update audit config input") as refused:
        changed_config(STORED, given)
    assert list(dict(refused.value.fields)) == [field]


def test_duplicate_positions_are_refused() -> None:
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
def test_a_new_step_goes_to_the_end(given: dict[str, object]) -> None:
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
def test_an_invalid_step_is_refused(given: dict[str, object], field: str, complaint: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        new_step(STORED, given)
    assert str(refused.value) == complaint
    assert list(dict(refused.value.fields)) == [field]


def test_the_number_of_steps_is_limited() -> None:
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
def test_a_patch_of_a_step_changes_only_given_fields(
    given: dict[str, object], changed: object
) -> None:
    assert changed_step(STORED, FIRST, given) == changed


@every_case(
    ("position", "why"),
    [(2, "is already taken"), (4, "would leave a gap"), (0, "would leave a gap")],
)
def test_a_step_cannot_move_to_an_invalid_position(position: int, why: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        changed_step(STORED, FIRST, {"position": position})
    assert str(refused.value) == f"Position {position} {why}. Available positions: 3"


LEAST_STEP = {
    "position": 1,
    "name": "Accueil",
    "prompt": "Vérifie.",
    "controlPoints": ["a"],
    "severityLevel": "LOW",
}
LEAST = {"name": "Contrôle", "steps": [LEAST_STEP]}


def with_step(**other: object) -> dict[str, object]:
    return LEAST | {"steps": [LEAST_STEP | other]}


def with_positions(*positions: object) -> dict[str, object]:
    return LEAST | {"steps": [LEAST_STEP | {"position": position} for position in positions]}


def faults(given_config: dict[str, object]) -> dict[str, str]:
    with pytest.raises(InvalidInputError, match=INVALID_CONFIG) as refused:
        parse_config(given_config)
    return dict(refused.value.fields)


_words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30).map(str.strip)
_filled = _words.filter(bool)
_steps = st.builds(
    AuditStep,
    position=st.just(1),
    name=_filled,
    prompt=_filled,
    control_points=st.lists(
        _filled, min_size=1, max_size=4, unique_by=lambda text: tuple(text.split())
    ).map(tuple),
    severity_level=st.sampled_from(Severity),
    description=st.none() | _filled,
    keywords=st.lists(_filled, max_size=4, unique=True).map(tuple),
    is_critical=st.booleans(),
    weight=st.integers(1, 10),
    chronological_important=st.booleans(),
    verify_product_info=st.booleans(),
)
_configs = st.builds(
    AuditConfig,
    name=_filled,
    steps=st.lists(_steps, min_size=1, max_size=4).map(
        lambda steps: tuple(replace(step, position=at) for at, step in enumerate(steps, start=1))
    ),
    description=st.none() | _filled,
    system_prompt=st.none() | _filled,
    is_active=st.booleans(),
    run_automatically=st.booleans(),
    created_by=st.none() | _filled,
)


@given(_configs, st.randoms())
def test_an_exported_configuration_round_trips_in_any_order_of_steps(
    config: AuditConfig, chance: object
) -> None:
    document = config_document(config)
    chance.shuffle(document["steps"])
    assert parse_config(document) == config


def test_the_smallest_configuration_is_valid() -> None:
    assert parse_config(LEAST) == AuditConfig(
        name="Contrôle",
        steps=(
            AuditStep(
                position=1,
                name="Accueil",
                prompt="Vérifie.",
                control_points=("a",),
                severity_level=Severity.LOW,
                weight=5,
            ),
        ),
        is_active=True,
        run_automatically=False,
    )


def test_extra_fields_of_seed_files_are_ignored() -> None:
    seed = {
        "id": "11",
        "name": "Contrôle",
        "version": 3,
        "totalSteps": 9,
        "verificationNote": None,
        "verificationConfiguration": {"enabled": True, "maxResultsPerCheckpoint": 3},
        "createdAt": "2026-01-01T00:00:00Z",
        "updatedAt": "2026-01-01T00:00:00Z",
        "auditSteps": [LEAST_STEP | {"id": "77"}],
    }
    assert parse_config(seed) == parse_config(LEAST)


def test_texts_are_stripped_and_empty_texts_become_none() -> None:
    step = parse_config(
        with_step(
            name=" Accueil\n",
            controlPoints=[" a ", "b"],
            keywords=["orias ", "", "orias"],
            description=" ",
        )
    ).steps[0]
    assert (step.name, step.control_points, step.keywords, step.description) == (
        "Accueil",
        ("a", "b"),
        ("orias",),
        None,
    )


@every_case(
    ("given_config", "field"),
    [
        ({"steps": [LEAST_STEP]}, "name"),
        (LEAST | {"name": " \x1c "}, "name"),
        (LEAST | {"name": "x" * 201}, "name"),
        (LEAST | {"name": 3}, "name"),
        (LEAST | {"systemPrompt": "x" * 50_001}, "systemPrompt"),
        (LEAST | {"isActive": 1}, "isActive"),
        (LEAST | {"unknownField": 1}, "unknownField"),
        (LEAST | {"auditSteps": [LEAST_STEP]}, "auditSteps"),
        ({"name": "Contrôle"}, "steps"),
        (LEAST | {"steps": []}, "steps"),
        (LEAST | {"steps": "un"}, "steps"),
        (LEAST | {"steps": [3]}, "steps.0"),
        ({"name": "Contrôle", "auditSteps": []}, "auditSteps"),
        (LEAST | {"description": "x" * 5_001}, "description"),
        (LEAST | {"createdBy": "x" * 201}, "createdBy"),
        (with_positions(*range(1, 102)), "steps"),
        (with_step(name="x" * 201), "steps.0.name"),
        (with_step(description="x" * 5_001), "steps.0.description"),
        (
            with_step(controlPoints=[f"point {number}" for number in range(101)]),
            "steps.0.controlPoints",
        ),
        (with_step(keywords=[f"word {number}" for number in range(201)]), "steps.0.keywords"),
        (with_step(keywords=["x" * 201]), "steps.0.keywords.0"),
        (with_step(name=""), "steps.0.name"),
        (with_step(prompt=" "), "steps.0.prompt"),
        (with_step(prompt="x" * 20_001), "steps.0.prompt"),
        (with_step(prompt="a\0b"), "steps.0.prompt"),
        (with_step(controlPoints=[]), "steps.0.controlPoints"),
        (with_step(controlPoints="a"), "steps.0.controlPoints"),
        (with_step(controlPoints=["a", " a "]), "steps.0.controlPoints"),
        (with_step(controlPoints=["a", " "]), "steps.0.controlPoints.1"),
        (with_step(controlPoints=["x" * 1001]), "steps.0.controlPoints.0"),
        (with_step(keywords="orias"), "steps.0.keywords"),
        (with_step(severityLevel="low"), "steps.0.severityLevel"),
        (with_step(severityLevel=None), "steps.0.severityLevel"),
        (with_step(isCritical="yes"), "steps.0.isCritical"),
        (with_step(weight=0), "steps.0.weight"),
        (with_step(weight=11), "steps.0.weight"),
        (with_step(weight="3"), "steps.0.weight"),
        (with_step(weight=True), "steps.0.weight"),
        (with_step(weight=3.0), "steps.0.weight"),
        (with_step(position="1"), "steps.0.position"),
        (with_step(position=True), "steps.0.position"),
        (with_step(position=1.0), "steps.0.position"),
        (with_step(customInstructions="x"), "steps.0.customInstructions"),
    ],
)
def test_the_error_names_the_invalid_field(given_config: dict[str, object], field: str) -> None:
    assert list(faults(given_config)) == [field]


def test_the_largest_configuration_is_valid() -> None:
    step = LEAST_STEP | {
        "name": "x" * 200,
        "prompt": "x" * 20_000,
        "description": "x" * 5_000,
        "controlPoints": [f"{number:04}".ljust(1_000, "x") for number in range(100)],
        "keywords": [f"{number:03}".ljust(200, "x") for number in range(200)],
        "weight": 10,
    }
    given = {
        "name": "x" * 200,
        "description": "x" * 5_000,
        "systemPrompt": "x" * 50_000,
        "createdBy": "x" * 200,
        "steps": [step | {"position": position} for position in range(1, 101)],
    }
    config = parse_config(given)
    assert len(config.steps) == 100
    assert config_document(config)["steps"][0] == step | {  # type: ignore[index]
        "isCritical": False,
        "chronologicalImportant": False,
        "verifyProductInfo": False,
    }


def test_all_invalid_fields_are_reported_together() -> None:
    bad = {
        "auditSteps": [LEAST_STEP | {"weight": 0}, LEAST_STEP | {"name": "", "position": 3}],
        "isActive": None,
    }
    assert set(faults(bad)) == {
        "name",
        "isActive",
        "auditSteps.0.weight",
        "auditSteps.1.name",
        "auditSteps",
    }


@every_case(
    ("positions", "reason"),
    [
        ((1, 2, 2, 3), "Step positions must be unique: 2 given more than once"),
        ((5, 1, 3), "Step positions must be 1 to 3 without gaps: 2 missing"),
        ((0, 1, 2), "Step positions count from 1, and these count from 0: give 1 to 3"),
        ((0,), "Step positions count from 1, and these count from 0: give 1 to 1"),
        ((-1,), "Step positions must be 1 to 1 without gaps: 1 missing"),
    ],
)
def test_the_error_explains_invalid_positions(positions: tuple[int, ...], reason: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        parse_config(with_positions(*positions))
    assert refused.value.fields[0] == ("steps", reason)


@every_case("positions", [(1,), (2, 1), (3, 1, 2)])
def test_steps_are_sorted_by_position(positions: tuple[int, ...]) -> None:
    steps = parse_config(with_positions(*positions)).steps
    assert [step.position for step in steps] == sorted(positions)


def test_the_fingerprint_covers_only_fields_that_affect_verdicts() -> None:
    config = parse_config(LEAST)
    same = replace(
        config, is_active=False, run_automatically=True, created_by="ops", description="autre"
    )
    others = (
        replace(config, name="Autre"),
        replace(config, system_prompt="Sois sévère."),
        replace(config, steps=(replace(config.steps[0], weight=6),)),
    )
    assert fingerprint(same) == fingerprint(config)
    assert len({fingerprint(other) for other in (config, *others)}) == 4


@every_case(
    ("taken", "free"),
    [(set(), [1]), ({1}, [2]), ({1, 2, 3}, [4]), ({1, 3}, [2]), ({2, 3}, [1]), ({1, 9}, [2, 3])],
)
def test_free_positions_between_steps(taken: set[int], free: list[int]) -> None:
    assert free_positions(taken) == free


@every_case(
    ("position", "sentence"),
    [
        (2, "Position 2 is already taken. Available positions: 4"),
        (5, "Position 5 would leave a gap. Available positions: 4"),
        (0, "Position 0 would leave a gap. Available positions: 4"),
        (-1, "Position -1 would leave a gap. Available positions: 4"),
    ],
)
def test_a_position_that_is_not_free_is_refused_and_free_ones_are_named(
    position: int, sentence: str
) -> None:
    with pytest.raises(InvalidInputError) as refused:
        require_free_position(position, {1, 2, 3})
    assert str(refused.value) == sentence
    assert refused.value.fields == (("position", sentence),)


@given(st.integers(0, 30))
def test_only_the_position_after_the_last_step_is_free(count: int) -> None:
    taken = set(range(1, count + 1))
    [free] = free_positions(taken)
    require_free_position(free, taken)
    assert taken | {free} == set(range(1, count + 2))


def test_an_order_that_names_every_step_once_is_accepted() -> None:
    for wanted in permutations([7, 8, 9]):
        check_order([7, 8, 9], wanted)
    check_order([], [])


@every_case(
    ("wanted", "reasons"),
    [
        ([7, 9], ["missing: 8"]),
        ([], ["missing: 7, 8, 9"]),
        ([7, 8, 9, 4, 5], ["not steps of this configuration: 4, 5"]),
        ([9, 8, 7, 9], ["given more than once: 9"]),
        (
            [9, 9, 4, 4],
            ["missing: 7, 8", "not steps of this configuration: 4", "given more than once: 9, 4"],
        ),
    ],
)
def test_the_error_names_the_steps_missing_from_an_order(
    wanted: list[int], reasons: list[str]
) -> None:
    with pytest.raises(InvalidInputError) as refused:
        check_order([7, 8, 9], wanted)
    assert refused.value.fields == tuple(("stepIds", reason) for reason in reasons)
