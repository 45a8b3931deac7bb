"""What is asked about pricing's dead letters, and what comes of it."""

from pydantic import BaseModel, Field

from automation_pipeline.api.schemas.pricing_runs import TargetIds
from automation_pipeline.core.json_model import JsonModel
from automation_pipeline.pricing.domain.field_rules import Flag


class LettersRetryInput(JsonModel):
    """With `force`, those too that would fail again unless their cause was removed."""

    force: Flag = False


class AcknowledgeInput(JsonModel):
    """Without `targetIds`, all of the project's."""

    target_ids: TargetIds | None = None


class RunSkipped(BaseModel):
    runId: str  # noqa: N815  its name in JSON
    why: str


class LettersRetried(BaseModel):
    runIds: list[str] = Field(examples=[["12", "15"]])  # noqa: N815  its name in JSON
    skipped: list[RunSkipped] = Field(description="The runs that cannot be retried now.")


class Acknowledged(BaseModel):
    acknowledged: int
