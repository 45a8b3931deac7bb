"""Every environment variable of the system, with its default and its meaning. A wrong value is one plain sentence."""

from datetime import date
from functools import cache
from os import environ
from typing import Annotated, Self

from pydantic import AliasChoices, Field, ValidationError, model_validator
from pydantic_settings import SettingsConfigDict

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.settings.housekeeping import HousekeepingSettings
from automation_pipeline.core.settings.types import Day, InHome, TimeZone


class Settings(HousekeepingSettings):
    """Field names are the variables' names in lower case. An empty variable counts as unset."""

    model_config = SettingsConfigDict(env_ignore_empty=True, extra="ignore", frozen=True)

    automation_first_day: Day = Field(
        default=date(2026, 1, 1),
        ge=date(2000, 1, 1),
        le=date(2100, 12, 31),
        description="The first day that has a partition, as YYYY-MM-DD.",
    )
    automation_timezone: TimeZone = Field(default="Europe/Paris", description="The zone whose days are the partitions.")
    automation_scheduler_window_minutes: int = Field(
        default=20, ge=5, le=10_080, description="How far back a due occurrence is looked for that was not run in time."
    )
    automation_scheduler_stale_grace_ms: int = Field(
        default=900_000, ge=60_000, le=86_400_000, description="Added to the three waits below: then a run is stale."
    )
    automation_max_recordings_per_fiche: int = Field(
        default=0,
        ge=0,
        le=10_000,
        description="Fiches with more are ignored, unless the schedule says otherwise; 0: none.",
    )
    automation_fiche_details_max_wait_ms: int = Field(
        default=600_000, ge=60_000, le=86_400_000, description="How long a run may fetch details."
    )
    automation_fiche_details_poll_interval_seconds: float = Field(
        default=20, ge=5, le=600, description="How often a run's log has a line about the details that are fetched."
    )
    automation_transcription_max_wait_ms: int = Field(
        default=900_000, ge=60_000, le=86_400_000, description="How long a run may wait for transcripts."
    )
    automation_transcription_poll_interval_seconds: float = Field(
        default=30,
        ge=5,
        le=600,
        description="The longest pause between two looks at the transcripts; the first are short.",
    )
    automation_audit_max_wait_ms: int = Field(
        default=1_800_000, ge=60_000, le=86_400_000, description="How long a run may wait for audits."
    )
    automation_audit_poll_interval_seconds: float = Field(
        default=60,
        ge=5,
        le=600,
        description="How often a run's log has a line about its audits; three without progress are a stall.",
    )
    automation_revalidation_cooldown_ms: int = Field(
        default=300_000, ge=0, le=86_400_000, description="A day's sales list that is younger is not asked for again."
    )
    automation_reports_dir: Annotated[str, InHome] = Field(
        default="$AUTOMATION_HOME/.automation/reports",
        validate_default=True,
        min_length=1,
        description="The folder of the reports: a day's files and the pages of runs.",
    )

    @model_validator(mode="after")
    def _hold_longer_than_a_call(self) -> Self:
        if self.pricing_lease_seconds <= self.shop_timeout_seconds:
            raise ValueError("PRICING_LEASE_SECONDS must be more than SHOP_TIMEOUT_SECONDS")
        return self


@cache
def load_settings() -> Settings:
    """Read the environment once a process. InvalidInputError names the first variable that cannot be used."""
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        reason = first["msg"].removeprefix("Value error, ").replace("Input should", "it should").rstrip(".")
        if not first["loc"]:  # of several variables together; the sentence names them
            raise InvalidInputError(f"{reason}.") from None
        name = _variable(str(first["loc"][0]))
        raise InvalidInputError(f"{name} cannot be used: {reason[0].lower()}{reason[1:]}.") from None


def _variable(location: str) -> str:
    """The variable that was set, where one field has several names."""
    aliases = [field.validation_alias for field in Settings.model_fields.values()]
    groups = [[str(name) for name in alias.choices] for alias in aliases if isinstance(alias, AliasChoices)]
    names = next((group for group in groups if location.upper() in group), [location.upper()])
    return next((name for name in names if environ.get(name)), names[0])
