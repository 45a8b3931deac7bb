"""The JSON form of one step of an audit configuration."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, StrictBool, StrictInt

from automation_pipeline.audits.domain.config import AuditStep, Severity
from automation_pipeline.audits.domain.config_fields import Description, Keywords, Name, Points, Prompt
from automation_pipeline.core.json_model import JsonModel, parse


class ConfigStepDocument(JsonModel):
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


class NewStepDocument(ConfigStepDocument):
    """Without a position it goes behind the others."""

    position: StrictInt | None = None  # type: ignore[assignment]  as it is sent; no step is made of this


def parse_step(given: Mapping[str, object], complaint: str) -> AuditStep:
    """InvalidInputError names every field at fault. Whether the position is free is not looked at."""
    return parse(ConfigStepDocument, without_id(given), complaint).step()


def config_step_document(step: AuditStep) -> dict[str, object]:
    """What parses to an equal step."""
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


def without_id(step: Mapping[str, object]) -> dict[str, object]:
    return {field: value for field, value in step.items() if field != "id"}
