"""Changes of a stored configuration: what they do not name stays, null clears, and its steps stay 1 to n."""

from collections.abc import Mapping

from automation_pipeline.audits.domain.config import AuditConfig, AuditStep
from automation_pipeline.audits.domain.config_document import MOST_STEPS, config_document, parse_config
from automation_pipeline.audits.domain.config_step import config_step_document, parse_step
from automation_pipeline.audits.domain.positions import check_free, free_positions
from automation_pipeline.core.errors import InvalidInputError

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
    taken = _positions(config)
    if len(taken) >= MOST_STEPS:
        raise InvalidInputError(f"An audit config has at most {MOST_STEPS} steps")
    behind = {} if given.get("position") is not None else {"position": free_positions(taken)[0]}
    step = parse_step({**given, **behind}, INVALID_STEP)
    check_free(step.position, taken)
    return step


def changed_step(config: AuditConfig, step: AuditStep, given: Mapping[str, object]) -> AuditStep:
    """One that goes behind the others leaves its place to those that it stood before."""
    changed = parse_step({**config_step_document(step), **given}, INVALID_STEP)
    if changed.position != step.position:
        check_free(changed.position, _positions(config))
    return changed


def _positions(config: AuditConfig) -> set[int]:
    return {step.position for step in config.steps}
