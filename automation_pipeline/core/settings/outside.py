"""Where things are: our own ground, and the providers with their limits."""

from pydantic import AliasChoices, Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from automation_pipeline.core.settings.types import DatabaseUrl, Home, HttpAddress, RedisUrl, Temperature, Token


class OutsideSettings(BaseSettings):
    # Only the last class of the chain is ever filled: those before it are not worth a validator each.
    model_config = SettingsConfigDict(defer_build=True)

    automation_home: Home = Field(
        default="",
        validate_default=True,
        description="The folder of the project, whose `.automation/` holds the database and the reports unless the "
        "settings below say otherwise. Without it: the nearest folder with a `workspace.yaml`, from the working "
        "directory upwards; outside of every project `$XDG_DATA_HOME/automation-pipeline`, by default below "
        "`~/.local/share`.",
    )
    database_url: DatabaseUrl = Field(
        default="sqlite:///$AUTOMATION_HOME/.automation/automation.db",
        validate_default=True,
        repr=False,  # it may hold a password
        description="Where everything is stored. SQLite is embedded, and `automation db upgrade` creates its file; "
        "`postgresql://…` for production.",
    )
    redis_url: RedisUrl | None = Field(
        default=None,
        repr=False,  # it may hold a password
        description="Rate limits, semaphores and the Celery queue are here when set. While it is away, and without it, "
        "limits and semaphores are in the database. Claims and the state of runs are always in the database.",
    )
    fiche_api_base_url: HttpAddress | None = Field(
        default=None,
        validation_alias=AliasChoices("FICHE_API_BASE_URL", "FICHE_API_URL"),
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
    llm_base_url: HttpAddress = Field(
        default="https://api.openai.com/v1",
        description="Address of an OpenAI-compatible server, with its `/v1`; the model of the audits answers there.",
    )
    llm_api_key: Token | None = Field(
        default=None,
        validation_alias=AliasChoices("LLM_API_KEY", "OPENAI_API_KEY"),
        description="Key for the model's server; audits need it where the server does. `OPENAI_API_KEY` is read too.",
    )
    llm_model: str = Field(
        default="gpt-5.2",
        min_length=1,
        validation_alias=AliasChoices("LLM_MODEL", "OPENAI_MODEL_AUDIT"),
        description="The model that judges transcripts. `OPENAI_MODEL_AUDIT` is read too.",
    )
    llm_temperature: Temperature = Field(
        default=0.0, description="How freely the model answers; `none` leaves it to the server, as some models demand."
    )
    llm_timeout_seconds: float = Field(
        default=300, gt=0, le=3600, description="How long one answer of the model is waited for."
    )
    llm_max_attempts: int = Field(
        default=4, ge=1, le=20, description="Calls of the model that may get no answer before the step has failed."
    )
    llm_backoff_base_seconds: float = Field(
        default=1, ge=0, le=3600, description="The wait before the second attempt; it doubles with each one after."
    )
    llm_backoff_max_seconds: float = Field(
        default=60, ge=0, le=3600, description="The longest wait between two attempts that we choose ourselves."
    )
    llm_rate_limit_per_minute: int = Field(
        default=500, ge=1, le=1_000_000, description="Calls of the model in any minute by all processes together."
    )
    llm_max_concurrency: int = Field(
        default=20, ge=1, le=1000, description="Calls of the model at the same time by all processes together."
    )
    llm_max_prompt_characters: int = Field(
        default=400_000,
        ge=4000,
        le=20_000_000,
        description="The longest prompt that is sent; calls that do not fit are read with tools instead.",
    )
