"""Jobs that bring the sales lists of a range of days, as the API shows them."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from automation_pipeline.core.json_model import Instant
from automation_pipeline.fiches.domain.fetch_job import JobStatus


class _Shown(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, extra="forbid")


class Standing(_Shown):
    """Each day of the range is completed, remaining or failed."""

    status: JobStatus
    progress: int = Field(ge=0, le=100)
    completed_days: int
    total_days: int
    total_fiches: int
    dates_completed: list[str]
    dates_remaining: list[str]
    dates_failed: list[str]
    error: str | None


class JobShown(Standing):
    job_id: str
    start_date: str
    end_date: str
    webhook_url: str | None
    created_by: str
    created_at: Instant
    updated_at: Instant
    completed_at: Instant | None


class DeliveryShown(_Shown):
    id: str
    event: Literal["progress", "complete", "failed"]
    status: Literal["pending", "sent", "failed"]
    status_code: int | None
    response_body: str | None
    last_error: str | None
    attempt: int
    next_retry_at: Instant | None
    created_at: Instant
    sent_at: Instant | None


class JobDetail(JobShown):
    """With the last deliveries of its webhook, the newest first."""

    webhook_deliveries: list[DeliveryShown]


class FicheInShort(_Shown):
    fiche_id: str
    groupe: str | None
    prospect_nom: str | None
    prospect_prenom: str | None
    recordings_count: int
    created_at: Instant | None


class PolledData(Standing):
    current_fiches_count: int
    partial_data: list[FicheInShort]
    data_url: str


class Polled(_Shown):
    success: Literal[True] = True
    job_id: str
    event: Literal["progress", "complete", "failed"]
    timestamp: Instant
    data: PolledData
