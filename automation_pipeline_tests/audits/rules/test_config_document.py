"""The JSON form of an audit configuration: what is accepted, what is refused and how it is said."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.audits.models.configs import (
    INVALID_CONFIG,
    AuditConfig,
    AuditStep,
    Severity,
    config_document,
    fingerprint,
    parse_config,
)
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline_tests.tables import every_case

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
def test_what_is_exported_parses_to_the_same_in_any_order_of_steps(
    config: AuditConfig, chance: object
) -> None:
    document = config_document(config)
    chance.shuffle(document["steps"])
    assert parse_config(document) == config


def test_a_configuration_needs_little() -> None:
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


def test_the_extras_of_seed_files_are_accepted_and_ignored() -> None:
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


def test_texts_are_stripped_and_empty_ones_are_none() -> None:
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
        (LEAST | {"unheardOf": 1}, "unheardOf"),
        (LEAST | {"auditSteps": [LEAST_STEP]}, "auditSteps"),
        ({"name": "Contrôle"}, "steps"),
        (LEAST | {"steps": []}, "steps"),
        (LEAST | {"steps": "un"}, "steps"),
        (LEAST | {"steps": [3]}, "steps.0"),
        ({"name": "Contrôle", "auditSteps": []}, "auditSteps"),
        (with_positions(*range(1, 102)), "steps"),
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
def test_the_field_at_fault_is_named(given_config: dict[str, object], field: str) -> None:
    assert list(faults(given_config)) == [field]


def test_every_fault_is_named_at_once() -> None:
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
def test_wrong_positions_are_explained(positions: tuple[int, ...], reason: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        parse_config(with_positions(*positions))
    assert refused.value.fields[0] == ("steps", reason)


@every_case("positions", [(1,), (2, 1), (3, 1, 2)])
def test_steps_are_put_in_the_order_of_their_positions(positions: tuple[int, ...]) -> None:
    steps = parse_config(with_positions(*positions)).steps
    assert [step.position for step in steps] == sorted(positions)


def test_the_fingerprint_is_of_what_judges() -> None:
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
