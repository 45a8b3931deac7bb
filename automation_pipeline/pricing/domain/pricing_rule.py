"""A rule as it is stored and shown."""

from typing import Any

from pydantic import Field

from automation_pipeline.core.json_model import Id, Instant, JsonModel, as_document
from automation_pipeline.pricing.domain.rule import RuleInput

TENANT = "main"
DEFAULT_PROJECT = "default"
LONGEST_PROJECT = 100


class PricingRule(RuleInput):
    """`version` rises with every change of what decides prices; of the name, the plan and the like it does not."""

    id: Id
    project_id: str = Field(max_length=LONGEST_PROJECT)
    version: int
    version_hash: str
    created_by: str
    created_at: Instant
    updated_at: Instant
    deleted_at: Instant | None = None

    @property
    def as_input(self) -> RuleInput:
        return RuleInput.model_validate({name: getattr(self, name) for name in RuleInput.model_fields})


class RuleVersion(JsonModel):
    """What a rule was at a version. `rule` is as people write it."""

    rule_id: Id
    version: int
    version_hash: str
    rule: dict[str, Any]  # Any: JSON
    created_by: str
    created_at: Instant


def rule_document(rule: PricingRule) -> dict[str, object]:
    return as_document(rule)


def input_document(rule: RuleInput) -> dict[str, object]:
    """What people write, whatever else is known of the rule."""
    written = as_document(rule)
    names = {field.alias or name for name, field in RuleInput.model_fields.items()}
    return {name: value for name, value in written.items() if name in names}
