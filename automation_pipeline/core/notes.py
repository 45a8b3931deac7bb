"""A line that a workflow writes down as it goes; `storage.workflow_logs` keeps it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class Note:
    """One line of a workflow's log. `trace_id` is the run's."""

    workflow: str
    entity_type: str
    entity_id: str
    trace_id: str
    message: str
    level: str = "info"
    step_name: str | None = None
    dagster_run_id: str | None = None
    data: Mapping[str, object] = field(default_factory=dict[str, object])
