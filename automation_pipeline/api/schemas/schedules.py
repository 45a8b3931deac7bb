"""Schedules as the API takes and shows them."""

from collections.abc import Mapping
from datetime import date
from typing import Literal, Self

from pydantic import BaseModel, Field

from automation_pipeline.automation.domain.documents import ScheduleShown
from automation_pipeline.automation.domain.run import Run, RunStatus
from automation_pipeline.automation.store.occurrences import Occurrence
from automation_pipeline.core.json_model import Id, Instant, JsonModel

NIGHTLY: Mapping[str, object] = {
    "name": "Nightly audit",
    "scheduleType": "DAILY",
    "timeOfDay": "02:00",
    "timezone": "Europe/Paris",
    "ficheSelection": {"mode": "date_range", "dateRange": "yesterday", "groupes": ["TEAM R1"]},
}
CHANGE: Mapping[str, object] = {"timeOfDay": "03:30", "description": None}


class ScheduleWithRuns(ScheduleShown):
    runs: list[Run]


class ScheduleList(BaseModel):
    success: Literal[True] = True
    data: list[ScheduleShown]
    count: int


class PauseInput(JsonModel):
    reason: str | None = Field(default=None, max_length=1000)


class DayBackfillInput(JsonModel):
    """The days of sales, and whether the answer only shows what would be filed."""

    first: date = Field(alias="from", examples=["2026-05-01"])
    last: date = Field(alias="to", examples=["2026-05-03"])
    dry_run: bool = False


class Skipped(BaseModel):
    id: str = Field(examples=["3"])
    skipped: Instant


class Coming(BaseModel):
    occurrences: list[Instant]


class OccurrenceShown(JsonModel):
    """Either a run, or why there was none."""

    due_at: Instant
    run_id: Id | None
    run_status: RunStatus | None
    not_run_because: str | None
    decided_at: Instant

    @classmethod
    def of(cls, occurrence: Occurrence) -> Self:
        return cls.model_validate(vars(occurrence))
