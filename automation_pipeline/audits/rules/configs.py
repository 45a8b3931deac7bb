"""Changes of a stored configuration: what a change leaves out stays, and step positions stay 1 to
n."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

from pydantic import Field

from automation_pipeline.audits.models.configs import (
    MAX_STEPS,
    AuditConfig,
    AuditStep,
    config_document,
    config_step_document,
    free_positions,
    parse_config,
    parse_step,
    require_free_position,
)
from automation_pipeline.audits.models.requests import IdInBody
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import JsonModel

INVALID_UPDATE = "Invalid update audit config input"
INVALID_STEP = "Invalid audit step input"


def changed_config(stored: AuditConfig, given: Mapping[str, object]) -> AuditConfig:
    """Steps that are given are all that there will be."""
    before = config_document(stored)
    if "auditSteps" in given:
        del before["steps"]
    return parse_config({**before, **given}, INVALID_UPDATE)


def new_step(config: AuditConfig, given: Mapping[str, object]) -> AuditStep:
    """Without a position it goes behind the others."""
    taken = _positions_of_config(config)
    if len(taken) >= MAX_STEPS:
        raise InvalidInputError(f"An audit config has at most {MAX_STEPS} steps")
    behind = {} if given.get("position") is not None else {"position": free_positions(taken)[0]}
    step = parse_step({**given, **behind}, INVALID_STEP)
    require_free_position(step.position, taken)
    return step


def changed_step(config: AuditConfig, step: AuditStep, given: Mapping[str, object]) -> AuditStep:
    """One that goes behind the others leaves its place to those that it stood before."""
    changed = parse_step({**config_step_document(step), **given}, INVALID_STEP)
    if changed.position != step.position:
        require_free_position(changed.position, _positions_of_config(config))
    return changed


def _positions_of_config(config: AuditConfig) -> set[int]:
    return {step.position for step in config.steps}


class StepOrder(JsonModel):
    """As somebody sends it: the ids of all the configuration's steps."""

    step_ids: Annotated[tuple[IdInBody, ...], Field(min_length=1, max_length=MAX_STEPS)]


def positions_in_order(step_ids: Sequence[int], given: Sequence[int]) -> dict[int, int]:
    """The position, from 1, of every step in the order given. InvalidInputError unless each step is
    named once."""
    known, named = set(step_ids), set(given)
    faults = {
        "missing": [step for step in step_ids if step not in named],
        "not steps of this configuration": dict.fromkeys(
            step for step in given if step not in known
        ),
        "given more than once": [step for step, times in Counter(given).items() if times > 1],
    }
    fields = tuple(("stepIds", f"{why}: {_joined_ids(ids)}") for why, ids in faults.items() if ids)
    if fields:
        raise InvalidInputError("The new order must name every step once", fields)
    return {step: position for position, step in enumerate(given, start=1)}


def _joined_ids(ids: Iterable[int]) -> str:
    return ", ".join(str(step) for step in ids)
