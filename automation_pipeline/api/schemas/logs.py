"""Lines of the workflow log as the API shows them."""

from typing import Any, Literal

from pydantic import BaseModel

from automation_pipeline.core.json_model import Instant
from automation_pipeline.core.notes import LogLevel


class WorkflowLine(BaseModel):
    id: str
    workflow: str
    level: LogLevel
    entity_type: str
    entity_id: str
    trace_id: str
    dagster_run_id: str | None
    step_name: str | None
    message: str
    data: dict[str, Any]  # Any: JSON
    created_at: Instant


class WorkflowLines(BaseModel):
    """`count` lines of `total` are here."""

    success: Literal[True] = True
    data: list[WorkflowLine]
    count: int
    total: int
    limit: int
    offset: int
