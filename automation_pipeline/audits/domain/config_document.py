"""The JSON form of an audit configuration, as files and the HTTP API have it. The value itself is in `config`."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, cast

from pydantic import AfterValidator, Field, StrictBool, StrictInt, ValidationError

from automation_pipeline.audits.domain.config import AuditConfig, AuditStep, Severity
from automation_pipeline.audits.domain.config_fields import (
    Author,
    Description,
    Keywords,
    Name,
    Points,
    Prompt,
    SystemPrompt,
    some,
)
from automation_pipeline.audits.domain.positions import position_faults
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import JsonModel, field_errors

COMPLAINT = "Invalid create audit config input"
MOST_STEPS = 100

# What files of other systems have and nothing here reads.
_EXTRAS = {
    "version",
    "totalSteps",
    "verificationNote",
    "verificationConfiguration",
    "id",
    "createdAt",
    "updatedAt",
}


class _StepDocument(JsonModel):
    position: StrictInt
    name: Name
    description: Description = None
    prompt: Prompt
    control_points: Points
    keywords: Keywords = ()
    severity_level: Severity
    is_critical: StrictBool = False
    weight: Annotated[StrictInt, Field(ge=1, le=10)] = 5
    chronological_important: StrictBool = False
    verify_product_info: StrictBool = False

    def step(self) -> AuditStep:
        return AuditStep(
            position=self.position,
            name=self.name,
            description=self.description,
            prompt=self.prompt,
            control_points=self.control_points,
            keywords=self.keywords,
            severity=self.severity_level,
            is_critical=self.is_critical,
            weight=self.weight,
            chronological_important=self.chronological_important,
            verify_product_info=self.verify_product_info,
        )


class _ConfigDocument(JsonModel):
    name: Name
    description: Description = None
    system_prompt: SystemPrompt = None
    is_active: StrictBool = True
    run_automatically: StrictBool = False
    created_by: Author = None
    steps: Annotated[tuple[_StepDocument, ...], Field(max_length=MOST_STEPS), AfterValidator(some)]

    def config(self) -> AuditConfig:
        return AuditConfig(
            name=self.name,
            description=self.description,
            system_prompt=self.system_prompt,
            is_active=self.is_active,
            run_automatically=self.run_automatically,
            created_by=self.created_by,
            steps=tuple(sorted((step.step() for step in self.steps), key=lambda step: step.position)),
        )


def parse_config(given: Mapping[str, object]) -> AuditConfig:
    """The configuration, its steps in order; or InvalidInputError that names every field at fault."""
    values, steps_name = _without_extras(given)
    faults = position_faults(values.get("steps"))
    if {"steps", "auditSteps"} <= set(given):
        faults = (("auditSteps", "is another name of steps: give one of them"), *faults)
    try:
        document = _ConfigDocument.model_validate(values)
    except ValidationError as error:
        faults = (*field_errors(error), *faults)
    else:
        if not faults:
            return document.config()
    raise InvalidInputError(COMPLAINT, tuple((_named(field, steps_name), why) for field, why in faults))


def config_document(config: AuditConfig) -> dict[str, object]:
    """What parses to an equal configuration."""
    return {
        "name": config.name,
        "description": config.description,
        "systemPrompt": config.system_prompt,
        "isActive": config.is_active,
        "runAutomatically": config.run_automatically,
        "createdBy": config.created_by,
        "steps": [_step_document(step) for step in config.steps],
    }


def fingerprint(config: AuditConfig) -> str:
    """The same for two configurations that judge alike, in use or not."""
    judging = {name: config_document(config)[name] for name in ("name", "systemPrompt", "steps")}
    canonical = json.dumps(judging, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _step_document(step: AuditStep) -> dict[str, object]:
    return {
        "position": step.position,
        "name": step.name,
        "description": step.description,
        "prompt": step.prompt,
        "controlPoints": list(step.control_points),
        "keywords": list(step.keywords),
        "severityLevel": step.severity.value,
        "isCritical": step.is_critical,
        "weight": step.weight,
        "chronologicalImportant": step.chronological_important,
        "verifyProductInfo": step.verify_product_info,
    }


def _without_extras(given: Mapping[str, object]) -> tuple[dict[str, object], str]:
    """What is read, and the name that the steps have in what was given."""
    values = {field: value for field, value in given.items() if field not in _EXTRAS}
    steps_name = "auditSteps" if "auditSteps" in values and "steps" not in values else "steps"
    other_name = values.pop("auditSteps", None)
    if steps_name == "auditSteps":
        values["steps"] = other_name
    steps = values.get("steps")
    if isinstance(steps, list | tuple):
        values["steps"] = [_without_id(step) for step in cast("Sequence[object]", steps)]
    return values, steps_name


def _without_id(step: object) -> object:
    if not isinstance(step, dict):
        return step
    return {field: value for field, value in cast("dict[object, object]", step).items() if field != "id"}


def _named(field: str, steps_name: str) -> str:
    first, dot, rest = field.partition(".")
    return f"{steps_name}{dot}{rest}" if first == "steps" else field
