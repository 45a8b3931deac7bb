"""For how many days what is not a result is kept. After a week nothing is at work any more: no wait is that long."""

from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from automation_pipeline.core.settings.engine import EngineSettings

SHORTEST_DAYS = 7


def _a_week_or_for_ever(days: int) -> int:
    if 0 < days < SHORTEST_DAYS:
        raise ValueError(f"it must be {SHORTEST_DAYS} days or more, or 0 to keep them for ever")
    return days


KeepDays = Annotated[int, Field(ge=0, le=3650), AfterValidator(_a_week_or_for_ever)]


class HousekeepingSettings(EngineSettings):
    automation_logs_keep_days: KeepDays = Field(
        default=90, description="How long the log lines of ended runs are kept, in days; 0, here and below: for ever."
    )
    automation_notifications_keep_days: KeepDays = Field(
        default=90,
        description="How long webhooks and e-mails about ended runs are kept that were sent, or failed.",
    )
    workflow_logs_keep_days: KeepDays = Field(
        default=90, description="How long the log lines of transcriptions and audits are kept."
    )
    state_transitions_keep_days: KeepDays = Field(
        default=365,
        description="How long it is kept which state ended runs, ended pricing runs and companies were in before.",
    )
    outbox_keep_days: KeepDays = Field(
        default=14, description="How long events are kept after they have left; a stream can be resumed for so long."
    )
    outbox_parked_keep_days: KeepDays = Field(
        default=180, description="How long events are kept that were given up after five attempts."
    )
    run_requests_keep_days: KeepDays = Field(
        default=90, description="How long requests for Dagster runs are kept that were taken or refused."
    )
    idempotency_keys_keep_days: KeepDays = Field(
        default=7, description="How long answers under an `Idempotency-Key` stay stored; they are repeated for 7 days."
    )
    leases_keep_days: KeepDays = Field(
        default=7, description="How long claims, pauses, rate limits and signs of life are kept that are over."
    )
    fetch_jobs_keep_days: KeepDays = Field(
        default=90, description="How long ended jobs over days are kept, with what their webhooks were told."
    )
    transcription_tasks_keep_days: KeepDays = Field(
        default=90, description="How long the queue remembers recordings that were transcribed; the transcripts stay."
    )
    pricing_alerts_keep_days: KeepDays = Field(
        default=90, description="How long pricing alerts are kept, and how their webhooks ended."
    )
    enrichment_jobs_keep_days: KeepDays = Field(
        default=365, description="How long ended enrichments are kept; the newest one of each company always is."
    )
    dagster_events_keep_days: KeepDays = Field(
        default=30,
        description="How long the events and step logs of ended Dagster runs are kept. What was materialised, observed "
        "and checked stays.",
    )
    dagster_runs_keep_days: KeepDays = Field(
        default=365, description="How long ended Dagster runs are listed; not shorter than their events."
    )

    @model_validator(mode="after")
    def _runs_as_long_as_their_events(self) -> Self:
        events, runs = self.dagster_events_keep_days, self.dagster_runs_keep_days
        if runs and (not events or runs < events):
            raise ValueError("DAGSTER_RUNS_KEEP_DAYS must not be less than DAGSTER_EVENTS_KEEP_DAYS")
        return self
