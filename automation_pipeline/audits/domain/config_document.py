"""The JSON form of an audit configuration, as files and the HTTP API have it. The value itself is in `config`."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, cast

from pydantic import AfterValidator, Field, StrictBool, ValidationError

from automation_pipeline.audits.domain.config import AuditConfig
from automation_pipeline.audits.domain.config_fields import Author, Description, Name, SystemPrompt, some
from automation_pipeline.audits.domain.config_step import ConfigStepDocument, config_step_document, without_id
from automation_pipeline.audits.domain.positions import MUST_BE_UNIQUE, position_faults
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import JsonModel, field_errors

COMPLAINT = "Invalid create audit config input"
MOST_STEPS = 100

# What files of other systems have, and our own answers beside the configuration: nothing here reads it.
_EXTRAS = {
    "version",
    "totalSteps",
    "verificationNote",
    "verificationConfiguration",
    "id",
    "createdAt",
    "updatedAt",
    "stepsCount",
    "totalWeight",
    "stats",
}


class ConfigDocument(JsonModel):
    name: Name
    description: Description = None
    system_prompt: SystemPrompt = None
    is_active: StrictBool = True
    run_automatically: StrictBool = False
    created_by: Author = None
    steps: Annotated[tuple[ConfigStepDocument, ...], Field(max_length=MOST_STEPS), AfterValidator(some)]

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


def parse_config(given: Mapping[str, object], complaint: str = COMPLAINT) -> AuditConfig:
    """The configuration, its steps in order; or InvalidInputError that names every field at fault."""
    values, steps_name = _without_extras(given)
    faults = position_faults(values.get("steps"))
    if {"steps", "auditSteps"} <= set(given):
        faults = (("auditSteps", "is another name of steps: give one of them"), *faults)
    try:
        document = ConfigDocument.model_validate(values)
    except ValidationError as error:
        faults = (*field_errors(error), *faults)
    else:
        if not faults:
            return document.config()
        complaint = MUST_BE_UNIQUE if faults[0][1].startswith(MUST_BE_UNIQUE) else complaint
    raise InvalidInputError(complaint, tuple((_named(field, steps_name), why) for field, why in faults))


def config_faults(given: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    """By field; none when it parses."""
    try:
        parse_config(given)
    except InvalidInputError as error:
        return error.fields or (("", str(error)),)
    return ()


def config_document(config: AuditConfig) -> dict[str, object]:
    """What parses to an equal configuration."""
    return {
        "name": config.name,
        "description": config.description,
        "systemPrompt": config.system_prompt,
        "isActive": config.is_active,
        "runAutomatically": config.run_automatically,
        "createdBy": config.created_by,
        "steps": [config_step_document(step) for step in config.steps],
    }


def fingerprint(config: AuditConfig) -> str:
    """The same for two configurations that judge alike, in use or not."""
    judging = {name: config_document(config)[name] for name in ("name", "systemPrompt", "steps")}
    canonical = json.dumps(judging, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _without_extras(given: Mapping[str, object]) -> tuple[dict[str, object], str]:
    """What is read, and the name that the steps have in what was given."""
    values = {field: value for field, value in given.items() if field not in _EXTRAS}
    steps_name = "auditSteps" if "auditSteps" in values and "steps" not in values else "steps"
    other_name = values.pop("auditSteps", None)
    if steps_name == "auditSteps":
        values["steps"] = other_name
    steps = values.get("steps")
    if isinstance(steps, list | tuple):
        values["steps"] = [
            without_id(cast("Mapping[str, object]", step)) if isinstance(step, dict) else step
            for step in cast("Sequence[object]", steps)
        ]
    return values, steps_name


def _named(field: str, steps_name: str) -> str:
    first, dot, rest = field.partition(".")
    return f"{steps_name}{dot}{rest}" if first == "steps" else field
