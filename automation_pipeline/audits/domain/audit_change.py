"""What people may change of an audit besides its findings."""

from typing import Annotated

from pydantic import ConfigDict, Field, StrictBool

from automation_pipeline.audits.domain.body_values import SentId, TriggerSource, UserId
from automation_pipeline.core.json_model import JsonModel

COMPLAINT = "The audit cannot be changed so"


class AuditChange(JsonModel):
    """What is not given stays as it was; null clears it."""

    model_config = ConfigDict(alias_generator=None)

    notes: Annotated[str | None, Field(max_length=20_000)] = None
    deleted: StrictBool = False
    automation_schedule_id: SentId | None = None
    automation_run_id: SentId | None = None
    trigger_source: TriggerSource | None = None
    trigger_user_id: UserId | None = None
