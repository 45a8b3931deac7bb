"""What is answered to whoever asks for audits."""

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, Field

from automation_pipeline.core.json_model import Instant

ONE: Mapping[str, object] = {"fiche_id": "1900417", "audit_config_id": "11"}
LINKED: Mapping[str, object] = {**ONE, "automation_schedule_id": "3", "automation_run_id": "17"}
LATEST: Mapping[str, object] = {"fiche_id": "1900417"}
SEVERAL: Mapping[str, object] = {"fiche_ids": ["1900417", "1900418"], "audit_config_id": "11"}
OVERRULED: Mapping[str, object] = {"conforme": "CONFORME", "score": 5, "reason": "It is said at 02:10"}
POINT_OVERRULED: Mapping[str, object] = {"statut": "PRESENT", "reason": "It is said at 02:10"}
AGAIN: Mapping[str, object] = {"customPrompt": "The recording notice counts when it is said by the prospect"}


class QueuedAt(BaseModel):
    timestamp: Instant
    status: Literal["queued"]


class AuditQueued(BaseModel):
    """`audit_id` is the id by which the audit is followed; the audit's own id is known when it begins."""

    success: Literal[True] = True
    message: Literal["Audit queued for processing"]
    event_id: str = Field(examples=["audit-1900417-11-1770111111111"])
    audit_id: str
    fiche_id: str
    audit_config_id: str
    metadata: QueuedAt


class LatestAuditQueued(AuditQueued):
    audit_config_name: str


class BatchQueued(BaseModel):
    success: Literal[True] = True
    message: str
    fiche_ids: list[str]
    audit_config_id: str
    batch_id: str
    event_ids: list[str]


class StepRerunQueued(BaseModel):
    success: Literal[True] = True
    message: str
    event_id: str
    rerun_id: str
    audit_id: str
    step_position: int


class PointRerunQueued(StepRerunQueued):
    control_point_index: int
