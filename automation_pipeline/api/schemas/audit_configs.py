"""Audit configurations as the API takes and shows them."""

from collections.abc import Mapping

from pydantic import BaseModel, Field

from automation_pipeline.api.envelope import FieldFault
from automation_pipeline.audits.stages.import_config import Outcome

STEP: Mapping[str, object] = {
    "position": 1,
    "name": "Identity and recording notice",
    "prompt": "Check that the advisor introduces the company and says that the call is recorded.",
    "controlPoints": ["Advisor gives first and last name", "Recording announced"],
    "keywords": ["recorded", "ORIAS"],
    "severityLevel": "CRITICAL",
    "isCritical": True,
    "weight": 10,
}
CONFIG: Mapping[str, object] = {
    "name": "Sales call compliance",
    "systemPrompt": "You are a quality controller.",
    "runAutomatically": True,
    "steps": [STEP],
}
CHANGE: Mapping[str, object] = {"description": None, "isActive": False}
STEP_CHANGE: Mapping[str, object] = {"weight": 8, "description": None}
ORDER: Mapping[str, object] = {"stepIds": ["31", "30", "32"]}


class ConfigCreated(BaseModel):
    id: str = Field(examples=["11"])
    name: str


class ConfigImported(ConfigCreated):
    outcome: Outcome
    stepsCount: int  # noqa: N815  its name in JSON


class ConfigChanged(ConfigCreated):
    stepsCount: int  # noqa: N815  its name in JSON


class Validity(BaseModel):
    """Whether it could be imported as it is."""

    valid: bool
    errors: list[FieldFault]
