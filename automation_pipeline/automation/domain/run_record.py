"""What stays of a run beside its outcomes: what it wrote down, and who was told of it."""

from collections.abc import Mapping
from typing import Any

from automation_pipeline.core.json_model import Id, Instant, JsonModel


class LogEntry(JsonModel):
    id: Id
    timestamp: Instant
    level: str
    message: str
    metadata: Mapping[str, Any]  # Any: JSON


class RunNotification(JsonModel):
    """One message to one receiver, and how its delivery stands."""

    channel: str
    target: str
    status: str
    attempts: int
    status_code: int | None
    last_error: str | None
    sent_at: Instant | None
