"""Runs as the API shows them, and what asks for one."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from automation_pipeline.automation.domain.run import FicheOutcome, Phase, Run
from automation_pipeline.core.json_model import Instant, JsonModel


class LogShown(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True)

    id: str
    timestamp: Instant
    level: Literal["debug", "info", "warning", "error"]
    message: str
    metadata: dict[str, Any]  # Any: JSON


class ProgressShown(BaseModel):
    """Fiches by how far they have come."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True)

    selected: int
    fetched: int
    to_work: int
    transcribed: int
    audited: int
    ended: int
    audits: int


class PhaseShown(BaseModel):
    phase: Phase
    seconds: float


class NotificationShown(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True)

    channel: str
    target: str
    status: str
    attempts: int
    status_code: int | None
    last_error: str | None
    sent_at: str | None


class RunDetail(Run):
    """A run with how far it is, why fiches did not succeed, who was told, and the first of its log."""

    config_snapshot: dict[str, Any]  # Any: JSON
    result_summary: dict[str, Any] | None
    progress: ProgressShown
    phases: list[PhaseShown]
    reasons: dict[str, dict[str, int]]
    notifications: list[NotificationShown]
    logs: list[LogShown]


class OutcomeList(BaseModel):
    success: Literal[True] = True
    data: list[FicheOutcome]
    count: int
    limit: int
    offset: int


class Triggered(BaseModel):
    success: Literal[True] = True
    message: Literal["Automation triggered successfully"] = "Automation triggered successfully"
    schedule_id: str
    run_id: str = Field(description="Follow it at /api/automation/runs/{run_id}/events.")
    event_ids: list[str]


class Retried(BaseModel):
    success: Literal[True] = True
    message: str
    schedule_id: str
    run_id: str
    retry_of_run_id: str


class CancelInput(JsonModel):
    reason: str | None = Field(default=None, max_length=1000)
