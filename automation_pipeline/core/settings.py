"""Every environment variable of the system, with its default and its meaning. A wrong value is one plain sentence."""

import re
from datetime import date
from functools import cache
from os import environ
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    AliasChoices,
    BeforeValidator,
    Field,
    HttpUrl,
    SecretStr,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic_settings import BaseSettings, SettingsConfigDict

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.wall_clock import zone


def _http_address(value: str) -> str:
    address = value.strip()
    try:
        parts = TypeAdapter(HttpUrl).validate_python(address)
    except ValidationError:
        raise ValueError("it must be an http:// or https:// address") from None
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError("it must be an address without user, query and fragment")
    return address


def _database_url(value: str) -> str:
    if not value.startswith(("sqlite:///", "postgresql://", "postgresql+psycopg://")):
        raise ValueError("it must start with sqlite:/// or postgresql://")
    return _with_a_file(value) if value.startswith("sqlite:") else _with_readable_port(value)


def _with_a_file(value: str) -> str:
    path = value.removeprefix("sqlite:///").partition("?")[0]
    if not path.strip() or ":memory:" in path or "mode=memory" in value:
        raise ValueError("it must name a file: in memory, every command would see a database of its own")
    return value


def _redis_url(value: str) -> str:
    if not value.startswith(("redis://", "rediss://", "unix://")):
        raise ValueError("it must start with redis://, rediss:// or unix://")
    return _with_readable_port(value)


def _time_zone(value: str) -> str:
    try:
        zone(value)
    except InvalidInputError as error:
        raise ValueError(str(error)) from None
    return value


def _with_readable_port(value: str) -> str:
    try:
        _ = urlsplit(value).port
    except ValueError:  # its text would show a piece of the password
        raise ValueError(
            "its host or port cannot be read; characters such as / in a password must be percent-encoded"
        ) from None
    return value


def _token(value: SecretStr) -> SecretStr:
    token = value.get_secret_value().strip()
    if not (token.isascii() and token.isprintable()):
        raise ValueError("it holds characters that cannot be sent")
    return SecretStr(token)


def _written_day(value: object) -> object:
    # pydantic takes numbers for days too, as seconds since 1970
    if isinstance(value, str) and not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", value):
        raise ValueError("it must be a day written as YYYY-MM-DD")
    return value


HttpAddress = Annotated[str, AfterValidator(_http_address)]
TimeZone = Annotated[str, AfterValidator(_time_zone)]
DatabaseUrl = Annotated[str, AfterValidator(_database_url)]
RedisUrl = Annotated[str, AfterValidator(_redis_url)]
Token = Annotated[SecretStr, AfterValidator(_token)]
Day = Annotated[date, BeforeValidator(_written_day)]


CRM_ADDRESS = ("FICHE_API_BASE_URL", "FICHE_API_URL")


class Settings(BaseSettings):
    """Field names are the variables' names in lower case. An empty variable counts as unset."""

    model_config = SettingsConfigDict(env_ignore_empty=True, extra="ignore", frozen=True)

    database_url: DatabaseUrl = Field(
        default="sqlite:///.automation/automation.db",
        repr=False,  # it may hold a password
        description="Where everything is remembered. SQLite is embedded; `postgresql://…` for production.",
    )
    redis_url: RedisUrl | None = Field(
        default=None,
        repr=False,  # it may hold a password
        description="Leases and rate limits live here when set, in the database otherwise, with the same promises.",
    )
    fiche_api_base_url: HttpAddress | None = Field(
        default=None,
        validation_alias=AliasChoices(*CRM_ADDRESS),
        description="Address of the CRM gateway; `/api` is added when it is not there. `FICHE_API_URL` is read too.",
    )
    fiche_api_auth_token: Token | None = Field(
        default=None, description="Bearer token for the CRM gateway, with or without the word Bearer."
    )
    fiche_api_timeout_seconds: float = Field(
        default=60, gt=0, le=600, description="How long an answer of the CRM gateway is waited for."
    )
    fiche_fetch_concurrency: int = Field(
        default=10, ge=1, le=500, description="Fiches asked of the CRM at the same time by one process."
    )
    fiche_sales_search_concurrency: int = Field(
        default=3, ge=1, le=50, description="Sales lists asked of the CRM at the same time by all processes together."
    )
    elevenlabs_api_key: Token | None = Field(
        default=None, description="Key for ElevenLabs' speech-to-text; transcription needs it."
    )
    elevenlabs_base_url: HttpAddress = Field(
        default="https://api.elevenlabs.io", description="Address of ElevenLabs' API, without `/v1`."
    )
    transcription_elevenlabs_rate_limit_per_minute: int = Field(
        default=10, ge=1, le=100_000, description="Calls of ElevenLabs in any minute by all processes together."
    )
    transcription_elevenlabs_max_attempts: int = Field(
        default=6, ge=1, le=20, description="Calls of ElevenLabs for one recording before it counts as failed."
    )
    transcription_elevenlabs_backoff_base_seconds: float = Field(
        default=2, ge=0, le=3600, description="The wait before the second attempt; it doubles with each one after."
    )
    transcription_elevenlabs_backoff_max_seconds: float = Field(
        default=60, ge=0, le=86_400, description="The longest wait between two attempts that we choose ourselves."
    )
    transcription_recording_worker_concurrency: int = Field(
        default=10, ge=1, le=500, description="Recordings transcribed at the same time by one process."
    )
    transcription_recording_per_fiche_concurrency: int = Field(
        default=10, ge=1, le=500, description="Recordings of one fiche transcribed at the same time."
    )
    transcription_max_wait_seconds: float = Field(
        default=900, ge=30, le=86_400, description="How long a caller that waits for a transcription waits at most."
    )
    transcription_lease_seconds: float = Field(
        default=60, ge=5, le=3600, description="How long a claim on a fiche or recording outlives its last heartbeat."
    )
    transcription_audio_max_megabytes: int = Field(
        default=500, ge=1, le=3000, description="The biggest recording that is downloaded, in millions of bytes."
    )
    transcription_progress_webhook_frequency: int = Field(
        default=3, ge=1, le=10_000, description="A progress event after every so many recordings of a fiche."
    )
    automation_first_day: Day = Field(
        default=date(2026, 1, 1),
        ge=date(2000, 1, 1),
        le=date(2100, 12, 31),
        description="The first day that has a partition, as YYYY-MM-DD.",
    )
    automation_timezone: TimeZone = Field(default="Europe/Paris", description="The zone whose days are the partitions.")
    automation_executor: Literal["in_process", "multiprocess"] = Field(
        default="in_process",
        description="How Dagster runs the steps of a run: in one process, or in one process a step.",
    )
    automation_max_processes: int = Field(
        default=2, ge=1, le=64, description="Step processes at the same time when the executor is `multiprocess`."
    )
    automation_heartbeat_seconds: float = Field(
        default=10, gt=0, le=600, description="How often a working run says that it is alive; see the next one."
    )
    automation_lost_after_seconds: float = Field(
        default=120,
        gt=0,
        le=86_400,
        description="A run that was silent for this long, three heartbeats or more, is taken for dead and retried or "
        "closed.",
    )

    @model_validator(mode="after")
    def _lost_after_several_heartbeats(self) -> Self:
        if 3 * self.automation_heartbeat_seconds > self.automation_lost_after_seconds + 1e-9:
            raise ValueError("AUTOMATION_HEARTBEAT_SECONDS must be at most a third of AUTOMATION_LOST_AFTER_SECONDS")
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
    names = CRM_ADDRESS if location in CRM_ADDRESS else (location.upper(),)
    return next((name for name in names if environ.get(name)), names[0])
