"""Every environment variable of the system, with its default and its meaning."""

from datetime import date
from functools import cache
from os import environ
from typing import Annotated, Literal, Self

from pydantic import (
    AliasChoices,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic_settings import BaseSettings, SettingsConfigDict

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.settings_types import (
    AlertShape,
    DatabaseUrl,
    Day,
    Home,
    HttpAddress,
    InHome,
    KeepDays,
    Origins,
    RedisUrl,
    Temperature,
    TimeZone,
    Token,
    Tokens,
)


class Settings(BaseSettings):
    """Field names are the variables' names in lower case. An empty variable counts as unset. The
    order is that of docs/configuration.md."""

    model_config = SettingsConfigDict(env_ignore_empty=True, extra="ignore", frozen=True)

    # Storage and other systems
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
        description="The database. SQLite is embedded, and `automation db upgrade` creates its file; "
        "`postgresql://…` for production.",
    )
    redis_url: RedisUrl | None = Field(
        default=None,
        repr=False,  # it may hold a password
        description="Holds rate limits, semaphores and the Celery queue when it is set. During an outage, and without "
        "it, limits and semaphores are in the database. Claims and the state of runs are always in the database.",
    )
    fiche_api_base_url: HttpAddress | None = Field(
        default=None,
        validation_alias=AliasChoices("FICHE_API_BASE_URL", "FICHE_API_URL"),
        description="Address of the CRM gateway; `/api` is added when it is not there. `FICHE_API_URL` is read too.",
    )
    fiche_api_auth_token: Token | None = Field(
        default=None,
        description="Bearer token for the CRM gateway, with or without the word Bearer.",
    )
    fiche_api_timeout_seconds: float = Field(
        default=60, gt=0, le=600, description="The time limit of a call of the CRM gateway."
    )
    fiche_fetch_concurrency: int = Field(
        default=10,
        ge=1,
        le=500,
        description="Fiches that one process requests from the CRM at the same time.",
    )
    fiche_sales_search_concurrency: int = Field(
        default=3,
        ge=1,
        le=50,
        description="Sales lists that all processes together request from the CRM at the same time.",
    )
    elevenlabs_api_key: Token | None = Field(
        default=None, description="Key for ElevenLabs' speech-to-text; transcription needs it."
    )
    elevenlabs_base_url: HttpAddress = Field(
        default="https://api.elevenlabs.io",
        description="Address of ElevenLabs' API, without `/v1`.",
    )
    llm_base_url: HttpAddress = Field(
        default="https://api.openai.com/v1",
        description="Address of an OpenAI-compatible server, with its `/v1`, for the model of the audits.",
    )
    llm_api_key: Token | None = Field(
        default=None,
        validation_alias=AliasChoices("LLM_API_KEY", "OPENAI_API_KEY"),
        description="Key for the model's server, where the server requires one. `OPENAI_API_KEY` is read too.",
    )
    llm_model: str = Field(
        default="gpt-5.2",
        min_length=1,
        validation_alias=AliasChoices("LLM_MODEL", "OPENAI_MODEL_AUDIT"),
        description="The model that judges transcripts. `OPENAI_MODEL_AUDIT` is read too.",
    )
    llm_temperature: Temperature = Field(
        default=0.0,
        description="The temperature of the model; `none` leaves it to the server, which some models require.",
    )
    llm_timeout_seconds: float = Field(
        default=300, gt=0, le=3600, description="The time limit of one call of the model."
    )
    llm_max_attempts: int = Field(
        default=4,
        ge=1,
        le=20,
        description="Calls of the model without an answer before the step fails.",
    )
    llm_backoff_base_seconds: float = Field(
        default=1,
        ge=0,
        le=3600,
        description="The wait before the second attempt; it doubles with each further attempt.",
    )
    llm_backoff_max_seconds: float = Field(
        default=60,
        ge=0,
        le=3600,
        description="The longest back-off between two attempts; a provider may ask for a longer one.",
    )
    llm_rate_limit_per_minute: int = Field(
        default=500,
        ge=1,
        le=1_000_000,
        description="Calls of the model per minute by all processes together.",
    )
    llm_max_concurrency: int = Field(
        default=20,
        ge=1,
        le=1000,
        description="Calls of the model at the same time by all processes together.",
    )
    llm_max_prompt_characters: int = Field(
        default=400_000,
        ge=4000,
        le=20_000_000,
        description="The longest prompt; the model reads transcripts that do not fit with tools instead.",
    )

    # Fetching, transcription and audits
    progressive_fetch_webhook_frequency: int = Field(
        default=5,
        ge=1,
        le=1000,
        description="The webhook of a fetch job reports progress after this many days.",
    )
    transcription_elevenlabs_rate_limit_per_minute: int = Field(
        default=10,
        ge=1,
        le=100_000,
        description="Calls of ElevenLabs per minute by all processes together.",
    )
    transcription_elevenlabs_max_attempts: int = Field(
        default=6,
        ge=1,
        le=20,
        description="Calls of ElevenLabs for one recording before it fails.",
    )
    transcription_elevenlabs_backoff_base_seconds: float = Field(
        default=2,
        ge=0,
        le=3600,
        description="The wait before the second attempt; it doubles with each further attempt.",
    )
    transcription_elevenlabs_backoff_max_seconds: float = Field(
        default=60,
        ge=0,
        le=86_400,
        description="The longest back-off between two attempts; a provider may ask for a longer one.",
    )
    transcription_recording_worker_concurrency: int = Field(
        default=10,
        ge=1,
        le=500,
        description="Recordings transcribed at the same time by one process.",
    )
    transcription_recording_per_fiche_concurrency: int = Field(
        default=10,
        ge=1,
        le=500,
        description="Recordings of one fiche transcribed at the same time.",
    )
    transcription_max_wait_seconds: float = Field(
        default=900,
        ge=30,
        le=86_400,
        description="The longest time that a caller waits for a transcription.",
    )
    transcription_lease_seconds: float = Field(
        default=60,
        ge=5,
        le=3600,
        description="How long a claim on a fiche or recording lasts after its last heartbeat.",
    )
    transcription_audio_max_megabytes: int = Field(
        default=500,
        ge=1,
        le=3000,
        description="The largest recording that is downloaded, in millions of bytes.",
    )
    transcription_audio_allowed_origins: Origins = Field(
        default=(),
        description="Origins of recordings such as `https://calls.example.com`, separated by commas. When it is "
        "set, recordings are downloaded from these only, private addresses included; otherwise from every public one.",
    )
    transcription_progress_webhook_frequency: int = Field(
        default=3,
        ge=1,
        le=10_000,
        description="A progress event is sent after this many recordings of a fiche.",
    )
    audit_step_concurrency: int = Field(
        default=3,
        ge=1,
        le=100,
        description="Steps of one audit that the model judges at the same time.",
    )
    audit_run_concurrency: int = Field(
        default=4,
        ge=1,
        le=100,
        description="Audits of a run at the same time in one process. An audit also does work without the model: about "
        "twice `LLM_MAX_CONCURRENCY` keeps the model busy.",
    )
    audit_evidence_gating: bool = Field(
        default=True,
        description="Whether a quotation counts only if the transcript contains it; `0` turns it off.",
    )
    audit_evidence_min_quote_chars: int = Field(
        default=12,
        ge=1,
        le=1000,
        description="The shortest quotation that counts, in letters and digits.",
    )
    audit_step_timeline_excerpt: bool = Field(
        default=True,
        description="Whether steps that verify the product read an excerpt of the calls; `0` turns it off.",
    )
    audit_step_timeline_max_chunks: int = Field(
        default=40,
        ge=10,
        le=10_000,
        description="Chunks in such an excerpt, not counting their neighbours.",
    )
    audit_tool_rounds: int = Field(
        default=8,
        ge=2,
        le=50,
        description="Calls of the model for one step that reads the transcripts with tools.",
    )
    audit_lease_seconds: float = Field(
        default=60,
        ge=2,
        le=3600,
        description="How long the claim on an audit lasts after its last heartbeat.",
    )
    audit_max_wait_seconds: float = Field(
        default=1800,
        ge=30,
        le=86_400,
        description="An audit without a heartbeat for this long fails.",
    )

    # Webhooks and e-mail
    webhook_allowed_origins: Origins = Field(
        default=(),
        description="Origins such as `https://hooks.example.com`, separated by commas. When it is set, webhooks go to "
        "these only, private addresses included; otherwise to every public address.",
    )
    webhook_secret: Token | None = Field(
        default=None, description="Signs webhooks with an HMAC-SHA256 of time and body in a header."
    )
    webhook_timeout_seconds: float = Field(
        default=10, gt=0, le=25, description="The time limit of a call of a webhook."
    )
    webhook_max_attempts: int = Field(
        default=5, ge=1, le=20, description="Calls of a webhook before its message fails."
    )
    pagerduty_routing_key: Token | None = Field(
        default=None,
        description="The integration key of PagerDuty's Events API v2, for alert webhooks with the shape `pagerduty`.",
    )
    smtp_host: str | None = Field(
        default=None, description="The mail server; without it no e-mail is sent."
    )
    smtp_port: int = Field(default=587, ge=1, le=65535, description="Its port.")
    smtp_secure: bool = Field(
        default=False,
        description="Whether the connection is encrypted from the start, as always on port 465.",
    )
    smtp_user: str | None = Field(
        default=None, description="The user name for the mail server, if it requires one."
    )
    smtp_pass: Token | None = Field(default=None, description="The password of that user.")
    smtp_from: str | None = Field(
        default=None,
        description="The sender's address; `SMTP_USER` by default. Without either no e-mail is sent.",
    )
    smtp_timeout_ms: int = Field(
        default=10_000,
        ge=1000,
        le=20_000,
        description="The time limit of a call of the mail server.",
    )

    # HTTP API, command line, tokens, realtime and logs
    api_host: str = Field(
        default="127.0.0.1", min_length=1, description="The address that the HTTP API listens on."
    )
    api_port: int = Field(
        default=3002,
        ge=0,
        le=65535,
        validation_alias=AliasChoices("API_PORT", "PORT"),
        description="The port of the HTTP API; 0 takes a free one. `PORT` is read too.",
    )
    api_auth_tokens: Tokens = Field(
        default=(),
        validation_alias=AliasChoices("API_AUTH_TOKENS", "API_AUTH_TOKEN"),
        description="Machine tokens with all permissions, separated by commas, 16 characters or more each. "
        "`API_AUTH_TOKEN` is read too. `automation tokens create` makes tokens with fewer permissions.",
    )
    api_cors_origins: Origins = Field(
        default=(),
        description="Origins of web pages that may call the API from a browser, separated by commas.",
    )
    api_max_body_megabytes: int = Field(
        default=1,
        ge=1,
        le=1000,
        description="The largest body that the API reads, in millions of bytes. An import may be twice as large.",
    )
    api_timeout_seconds: float = Field(
        default=60,
        gt=0,
        le=3600,
        description="The time limit of a request; streams of events have none.",
    )
    api_shutdown_seconds: int = Field(
        default=15,
        ge=0,
        le=600,
        description="How long requests may still take when the API stops.",
    )
    automation_api_url: HttpAddress | None = Field(
        default=None,
        description="The API of another machine that the command line uses instead of the local database; "
        "`--api` overrides it.",
    )
    automation_api_token: Token | None = Field(
        default=None,
        description="The token for that API, made by `automation tokens create` on that machine.",
    )
    jwt_access_secret: Token | None = Field(
        default=None,
        min_length=32,
        description="The secret that users' access tokens are signed with (HS256), 32 characters or more; without it "
        "only machine tokens are accepted.",
    )
    jwt_issuer: str = Field(
        default="ai-audit", min_length=1, description="The issuer that users' tokens must have."
    )
    jwt_audience: str = Field(
        default="ai-audit", min_length=1, description="The audience that users' tokens must have."
    )
    pusher_app_id: str | None = Field(
        default=None,
        description="The Pusher application; realtime events are sent when all four of its values are set.",
    )
    pusher_key: str | None = Field(
        default=None,
        validation_alias=AliasChoices("PUSHER_KEY", "NEXT_PUBLIC_PUSHER_KEY"),
        description="Its key. `NEXT_PUBLIC_PUSHER_KEY` is read too.",
    )
    pusher_secret: Token | None = Field(default=None, description="Its secret.")
    pusher_cluster: str | None = Field(default=None, description="Its cluster, such as `eu`.")
    pusher_base_url: HttpAddress | None = Field(
        default=None,
        description="A server with Pusher's protocol to use instead of the cluster.",
    )
    pusher_use_private_channels: bool = Field(
        default=True,
        description="Whether channels are private; `0` drops the prefix, and everyone may subscribe.",
    )
    pusher_max_payload_bytes: int = Field(
        default=9000,
        ge=1000,
        le=10_000,
        description="A larger event is reduced to its identifying fields.",
    )
    pusher_dry_run: bool = Field(
        default=False, description="`1` writes realtime events to the log instead of sending them."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The lowest level that the system's processes log."
    )
    log_format: Literal["text", "json"] = Field(
        default="text", description="Plain text, or one JSON object per line."
    )

    # Shop and pricing
    shop_api_base_url: HttpAddress | None = Field(
        default=None,
        description="Address of the shop, such as `https://example.myshopify.com`; pricing needs it.",
    )
    shop_api_token: Token | None = Field(
        default=None,
        description="The shop's Admin API access token, with the scopes read_products and write_products.",
    )
    shop_api_version: str = Field(
        default="2026-10",
        pattern=r"^([0-9]{4}-[0-9]{2}|unstable)$",
        description="The version of the shop's Admin API, such as `2026-10`.",
    )
    shop_timeout_seconds: float = Field(
        default=30, gt=0, le=300, description="The time limit of a call of the shop."
    )
    worker_max_concurrency: int = Field(
        default=5,
        ge=1,
        le=50,
        description="Calls of the shop that one run of a pricing rule makes at the same time.",
    )
    worker_enable_reconciliation: bool = Field(
        default=True,
        description="Whether applied prices are checked again after five minutes, after an hour, and daily.",
    )
    pricing_lease_seconds: float = Field(
        default=120,
        ge=1,
        le=3600,
        description="How long the claim on a pricing run lasts after its last heartbeat; above SHOP_TIMEOUT_SECONDS.",
    )
    pricing_alert_webhook_url: HttpAddress | None = Field(
        default=None,
        description="Where pricing alerts are posted; without it they are only stored and shown.",
    )
    pricing_alert_webhook_shape: AlertShape = Field(
        default="generic",
        description="The message that this address expects: `generic` is the signed JSON of docs/api.md, `slack` a "
        "text for an incoming webhook of Slack, `pagerduty` an event of PagerDuty's Events API v2.",
    )
    pricing_critical_alert_webhook_url: HttpAddress | None = Field(
        default=None,
        description="Where critical pricing alerts are posted instead, for example a pager; "
        "without it they go to PRICING_ALERT_WEBHOOK_URL too.",
    )
    pricing_critical_alert_webhook_shape: AlertShape = Field(
        default="generic",
        description="The message that this address expects, as for PRICING_ALERT_WEBHOOK_SHAPE.",
    )

    # Organisations' jobs
    org_jobs_max_running: int = Field(
        default=20,
        ge=1,
        le=1000,
        description="Jobs of all organisations that run here at the same time; agents' jobs do not count.",
    )
    org_jobs_lease_seconds: float = Field(
        default=60,
        ge=1,
        le=3600,
        description="How long the claim on a job lasts after its last heartbeat.",
    )
    org_jobs_alert_webhook_url: HttpAddress | None = Field(
        default=None,
        description="Where alerts of organisations' jobs are posted; without it they are only shown.",
    )
    org_jobs_alert_webhook_shape: AlertShape = Field(
        default="generic",
        description="The message that this address expects, as for PRICING_ALERT_WEBHOOK_SHAPE.",
    )
    org_jobs_critical_alert_webhook_url: HttpAddress | None = Field(
        default=None,
        description="Where critical alerts of organisations' jobs are posted instead; without it they go to "
        "ORG_JOBS_ALERT_WEBHOOK_URL too.",
    )
    org_jobs_critical_alert_webhook_shape: AlertShape = Field(
        default="generic",
        description="The message that this address expects, as for PRICING_ALERT_WEBHOOK_SHAPE.",
    )
    org_jobs_keep_days: int = Field(
        default=90,
        ge=0,
        le=3650,
        description="How long ended jobs, fires and alerts of organisations are kept.",
    )
    org_jobs_audit_keep_days: int = Field(
        default=365,
        ge=0,
        le=3650,
        description="How long the audit log of organisations' hosts, servers, schedules and jobs is kept.",
    )
    org_jobs_https_allowed_origins: Origins = Field(
        default=(),
        description="Origins that jobs of organisations may call although they are private or without TLS, such as "
        "`http://localhost:3000`; all others must be public and use https.",
    )

    # Registers of companies and enrichment
    recherche_entreprises_base_url: HttpAddress | None = Field(
        default=None,
        description="Address of the Recherche d'entreprises: `https://recherche-entreprises.api.gouv.fr`; enrichment "
        "needs it. A registry without its variables is not called.",
    )
    recherche_entreprises_per_second: int = Field(
        default=6,
        ge=1,
        le=100,
        description="Its calls per second by all processes together; it allows seven per address.",
    )
    inpi_rne_base_url: HttpAddress | None = Field(
        default=None,
        description="Address of INPI's register of companies: `https://registre-national-entreprises.inpi.fr`.",
    )
    inpi_rne_username: str | None = Field(
        default=None, min_length=1, description="The account at INPI's register."
    )
    inpi_rne_password: SecretStr | None = Field(
        default=None, description="Its password; after five wrong ones INPI blocks the account."
    )
    inpi_rne_per_minute: int = Field(
        default=170,
        ge=1,
        le=10_000,
        description="Its calls per minute by all processes together; INPI bans accounts that make more than 180.",
    )
    inpi_rne_calls_per_day: int = Field(
        default=9_500,
        ge=1,
        le=1_000_000,
        description="Its calls per day; INPI allows 10,000 per account.",
    )
    api_entreprise_base_url: HttpAddress | None = Field(
        default=None,
        description="Address of API Entreprise: `https://entreprise.api.gouv.fr`; for public bodies only.",
    )
    api_entreprise_token: Token | None = Field(
        default=None, description="The token for API Entreprise."
    )
    api_entreprise_recipient: str | None = Field(
        default=None, pattern=r"^[0-9]{14}$", description="The SIRET of the public body that asks."
    )
    api_entreprise_context: str = Field(
        default="Enrichissement du référentiel des entreprises",
        min_length=1,
        max_length=200,
        description="The context of the calls, which API Entreprise requires with each.",
    )
    api_entreprise_object: str = Field(
        default="Enrichissement d'une fiche entreprise",
        min_length=1,
        max_length=49,
        description="The object of the calls, in fewer than 50 characters.",
    )
    api_entreprise_per_second: int = Field(
        default=4,
        ge=1,
        le=100,
        description="Its calls per second by all processes together; it allows 250 per minute and token.",
    )
    enrichment_timeout_seconds: float = Field(
        default=5, gt=0, le=120, description="The time limit of a call of a registry."
    )
    enrichment_freshness_days: int = Field(
        default=30,
        ge=1,
        le=3650,
        description="How old a company's snapshot may be before it is looked up again.",
    )
    enrichment_lock_seconds: float = Field(
        default=120,
        gt=0,
        le=3600,
        description="How long the claim on a company lasts after its last heartbeat.",
    )
    enrichment_heartbeat_seconds: float = Field(
        default=30,
        gt=0,
        le=1200,
        description="How often the claim is extended; at most a third of the value above.",
    )
    enrichment_cooldown_minutes: float = Field(
        default=15,
        ge=0,
        le=10_080,
        description="The shortest time between two manual refreshes of a company; 0: none.",
    )
    enrichment_optional_not_found: Literal["failed", "not_applicable"] = Field(
        default="failed",
        description="How a company counts that INPI or API Entreprise does not know: as a failure of that source, "
        "which makes the enrichment partial, or not at all.",
    )

    # Execution of runs
    automation_executor: Literal["in_process", "multiprocess", "celery", "k8s"] = Field(
        default="in_process",
        description="How Dagster runs the steps of a run: in one process, in one process per step, on Celery "
        "workers, or in one Kubernetes pod per step. It must be the same for every process of an installation.",
    )
    automation_max_processes: int = Field(
        default=2,
        ge=1,
        le=64,
        description="Steps at the same time unless the executor is `in_process`: processes, pods, or the concurrency "
        "of all Celery workers. It decides the number of batches.",
    )
    automation_celery_broker_url: RedisUrl | None = Field(
        default=None,
        description="The Redis that carries steps to Celery workers and their results back; without it `REDIS_URL`. "
        "Each installation needs a Redis database of its own.",
    )
    automation_celery_concurrency: int = Field(
        default=2,
        ge=1,
        le=64,
        description="Steps at the same time in one Celery worker without an option of its own.",
    )
    automation_heartbeat_seconds: float = Field(
        default=5,
        gt=0,
        le=600,
        description="How often a working run sends its heartbeat.",
    )
    automation_lost_after_seconds: float = Field(
        default=25,
        gt=0,
        le=86_400,
        description="A run without a heartbeat for this long, three heartbeats or more, is lost: the next attempt is "
        "requested, or the run is closed after three attempts in a row without progress.",
    )

    automation_sensor_max_interval_seconds: int = Field(
        default=3600,
        ge=1,
        le=3600,
        description="The longest interval between two ticks of a sensor. The sensors have intervals of 5 to 60 "
        "seconds, and Dagster checks every 5 seconds which of them are due.",
    )

    # Retention, in days
    automation_logs_keep_days: KeepDays = Field(
        default=90,
        description="How long the log lines of ended runs are kept, in days; 0, here and below: for ever.",
    )
    automation_notifications_keep_days: KeepDays = Field(
        default=90,
        description="How long sent and failed webhooks and e-mails about ended runs are kept.",
    )
    workflow_logs_keep_days: KeepDays = Field(
        default=90, description="How long the log lines of transcriptions and audits are kept."
    )
    state_transitions_keep_days: KeepDays = Field(
        default=365,
        description="How long the state transitions of ended runs, ended pricing runs and companies are kept.",
    )
    outbox_keep_days: KeepDays = Field(
        default=14,
        description="How long published events are kept; a stream can be resumed within this time.",
    )
    outbox_parked_keep_days: KeepDays = Field(
        default=180, description="How long events are kept that failed five times."
    )
    run_requests_keep_days: KeepDays = Field(
        default=90,
        description="How long taken and refused requests for Dagster runs are kept.",
    )
    idempotency_keys_keep_days: KeepDays = Field(
        default=7,
        description="How long answers under an `Idempotency-Key` are stored; they are repeated for 7 days.",
    )
    leases_keep_days: KeepDays = Field(
        default=7,
        description="How long expired claims, pauses, rate limits and heartbeats are kept.",
    )
    fetch_jobs_keep_days: KeepDays = Field(
        default=90,
        description="How long ended fetch jobs and their webhook deliveries are kept.",
    )
    transcription_tasks_keep_days: KeepDays = Field(
        default=90,
        description="How long the queue keeps ended transcription tasks; the transcripts stay.",
    )
    pricing_alerts_keep_days: KeepDays = Field(
        default=90, description="How long pricing alerts and their webhook deliveries are kept."
    )
    enrichment_jobs_keep_days: KeepDays = Field(
        default=365,
        description="How long ended enrichments are kept; the newest of each company always stays.",
    )
    dagster_runs_keep_days: KeepDays = Field(
        default=365,
        description="How long ended Dagster runs are kept, with their events and step logs. Materialisations, "
        "observations and check results are events of their run and are deleted with it.",
    )

    # Days, schedules and waits of automation runs
    automation_first_day: Day = Field(
        default=date(2026, 1, 1),
        ge=date(2000, 1, 1),
        le=date(2100, 12, 31),
        description="The first day that has a partition, as YYYY-MM-DD.",
    )
    automation_timezone: TimeZone = Field(
        default="Europe/Paris", description="The time zone of the daily partitions."
    )
    automation_scheduler_window_minutes: int = Field(
        default=20,
        ge=5,
        le=10_080,
        description="How late an occurrence may still run after its due time.",
    )
    automation_scheduler_stale_grace_ms: int = Field(
        default=900_000,
        ge=60_000,
        le=86_400_000,
        description="A run is stale after the three waits below and this time together.",
    )
    automation_max_recordings_per_fiche: int = Field(
        default=0,
        ge=0,
        le=10_000,
        description="Fiches with more recordings are ignored, unless the schedule sets a limit; 0: no limit.",
    )
    automation_fiche_details_max_wait_ms: int = Field(
        default=600_000,
        ge=60_000,
        le=86_400_000,
        description="How long a run may fetch details, from its start.",
    )
    automation_fiche_details_poll_interval_seconds: float = Field(
        default=20,
        ge=5,
        le=600,
        description="How often a run logs the progress of fetching details.",
    )
    automation_transcription_max_wait_ms: int = Field(
        default=900_000,
        ge=60_000,
        le=86_400_000,
        description="How long a run may wait for transcripts after the time for details, from its start.",
    )
    automation_transcription_poll_interval_seconds: float = Field(
        default=30,
        ge=5,
        le=600,
        description="The longest pause between two checks of the transcripts; the first pauses are short.",
    )
    automation_audit_max_wait_ms: int = Field(
        default=1_800_000,
        ge=60_000,
        le=86_400_000,
        description="How long a run may wait for audits after the times for details and transcripts, from its start.",
    )
    automation_audit_poll_interval_seconds: float = Field(
        default=60,
        ge=5,
        le=600,
        description="How often a run logs the progress of its audits; three times without progress are a stall.",
    )
    automation_revalidation_cooldown_ms: int = Field(
        default=300_000,
        ge=0,
        le=86_400_000,
        description="A day's sales list is not fetched again within this time.",
    )
    automation_reports_dir: Annotated[str, InHome] = Field(
        default="$AUTOMATION_HOME/.automation/reports",
        validate_default=True,
        min_length=1,
        description="The folder of the reports of days and runs.",
    )

    @model_validator(mode="after")
    def _leases_outlive_heartbeats(self) -> Self:
        if self.pricing_lease_seconds <= self.shop_timeout_seconds:
            raise ValueError("PRICING_LEASE_SECONDS must be more than SHOP_TIMEOUT_SECONDS")
        if 3 * self.enrichment_heartbeat_seconds > self.enrichment_lock_seconds + 1e-9:
            raise ValueError(
                "ENRICHMENT_HEARTBEAT_SECONDS must be at most a third of ENRICHMENT_LOCK_SECONDS"
            )
        if 3 * self.automation_heartbeat_seconds > self.automation_lost_after_seconds + 1e-9:
            raise ValueError(
                "AUTOMATION_HEARTBEAT_SECONDS must be at most a third of AUTOMATION_LOST_AFTER_SECONDS"
            )
        return self

    @model_validator(mode="after")
    def _pagerduty_has_a_key(self) -> Self:
        shapes = (
            self.pricing_alert_webhook_shape,
            self.pricing_critical_alert_webhook_shape,
            self.org_jobs_alert_webhook_shape,
            self.org_jobs_critical_alert_webhook_shape,
        )
        if "pagerduty" in shapes and self.pagerduty_routing_key is None:
            raise ValueError(
                "PAGERDUTY_ROUTING_KEY must be set where the shape of an alert webhook is pagerduty"
            )
        return self


@cache
def load_settings() -> Settings:
    """The environment, read once per process. Raises InvalidInputError, which names the first variable that cannot
    be used."""
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        reason = (
            first["msg"]
            .removeprefix("Value error, ")
            .replace("Input should", "it should")
            .rstrip(".")
        )
        if not first["loc"]:  # of several variables together; the sentence names them
            raise InvalidInputError(f"{reason}.") from None
        name = _variable_name(str(first["loc"][0]))
        raise InvalidInputError(
            f"{name} cannot be used: {reason[0].lower()}{reason[1:]}."
        ) from None


def _variable_name(location: str) -> str:
    """The variable that was set, where one field has several names."""
    aliases = [field.validation_alias for field in Settings.model_fields.values()]
    groups = [
        [str(name) for name in alias.choices]
        for alias in aliases
        if isinstance(alias, AliasChoices)
    ]
    names = next((group for group in groups if location.upper() in group), [location.upper()])
    return next((name for name in names if environ.get(name)), names[0])
