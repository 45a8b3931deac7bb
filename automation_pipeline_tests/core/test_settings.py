"""Every variable: default, limits, error message for an invalid value, and the configuration page."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path

import pytest

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.settings import Settings, load_settings
from automation_pipeline.core.settings_page import UNUSED, configuration_page, unused_settings
from automation_pipeline_tests.cases import every_case

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
PASSWORD = "s3cret/and more"
OLDER_NAMES = (
    "FICHE_API_URL", "OPENAI_API_KEY", "OPENAI_MODEL_AUDIT", "PORT", "API_AUTH_TOKEN", "NEXT_PUBLIC_PUSHER_KEY",
)  # fmt: skip
VARIABLES = (*(field.upper() for field in Settings.model_fields), *OLDER_NAMES)


@pytest.fixture(autouse=True)
def _empty_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Unset all variables and clear the cache of settings."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    load_settings.cache_clear()
    yield
    load_settings.cache_clear()


@contextmanager
def only_variable_set(variable: str, value: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(variable, value)
        load_settings.cache_clear()
        yield


def error_message() -> str:
    with pytest.raises(InvalidInputError) as caught:
        load_settings()
    return str(caught.value)


@every_case(
    ("variable", "value", "read"),
    [
        (
            "DATABASE_URL",
            "postgresql://anna:p%2Fw@db:5432/work",
            "postgresql://anna:p%2Fw@db:5432/work",
        ),
        (
            "DATABASE_URL",
            "postgresql+psycopg:///work?host=/tmp/socket",
            "postgresql+psycopg:///work?host=/tmp/socket",
        ),
        ("DATABASE_URL", "sqlite:////data/work.db", "sqlite:////data/work.db"),
        ("REDIS_URL", "rediss://:pw@cache:6380/1", "rediss://:pw@cache:6380/1"),
        ("REDIS_URL", "unix:///run/redis.sock", "unix:///run/redis.sock"),
        ("FICHE_API_BASE_URL", " https://crm.test/api\n", "https://crm.test/api"),
        ("FICHE_API_TIMEOUT_SECONDS", "0.5", 0.5),
        ("FICHE_API_TIMEOUT_SECONDS", "600", 600),
        ("FICHE_FETCH_CONCURRENCY", "500", 500),
        ("ELEVENLABS_BASE_URL", "http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("TRANSCRIPTION_ELEVENLABS_RATE_LIMIT_PER_MINUTE", "100000", 100_000),
        ("TRANSCRIPTION_ELEVENLABS_MAX_ATTEMPTS", "20", 20),
        ("TRANSCRIPTION_ELEVENLABS_BACKOFF_BASE_SECONDS", "0", 0),
        ("TRANSCRIPTION_ELEVENLABS_BACKOFF_MAX_SECONDS", "0.5", 0.5),
        ("TRANSCRIPTION_MAX_WAIT_SECONDS", "30", 30),
        ("TRANSCRIPTION_LEASE_SECONDS", "5", 5),
        ("TRANSCRIPTION_AUDIO_MAX_MEGABYTES", "3000", 3000),
        ("TRANSCRIPTION_PROGRESS_WEBHOOK_FREQUENCY", "1", 1),
        ("LLM_BASE_URL", "http://127.0.0.1:8000/v1", "http://127.0.0.1:8000/v1"),
        ("LLM_TEMPERATURE", "none", None),
        ("LLM_TEMPERATURE", "0.7", 0.7),
        ("AUDIT_EVIDENCE_GATING", "0", False),
        ("AUDIT_EVIDENCE_MIN_QUOTE_CHARS", "1", 1),
        ("AUDIT_STEP_TIMELINE_MAX_CHUNKS", "10", 10),
        (
            "WEBHOOK_ALLOWED_ORIGINS",
            "https://Hooks.test:8443, http://localhost",
            ("https://hooks.test:8443", "http://localhost"),
        ),
        (
            "TRANSCRIPTION_AUDIO_ALLOWED_ORIGINS",
            "http://127.0.0.1:4010",
            ("http://127.0.0.1:4010",),
        ),
        ("API_HOST", "0.0.0.0", "0.0.0.0"),  # noqa: S104  read, not listened on
        ("API_PORT", "0", 0),
        (
            "API_CORS_ORIGINS",
            "https://App.test,http://localhost:5173",
            ("https://app.test", "http://localhost:5173"),
        ),
        ("API_MAX_BODY_MEGABYTES", "1000", 1000),
        ("API_TIMEOUT_SECONDS", "0.5", 0.5),
        ("API_SHUTDOWN_SECONDS", "0", 0),
        ("JWT_ISSUER", "us", "us"),
        ("JWT_AUDIENCE", "them", "them"),
        ("PUSHER_APP_ID", "12", "12"),
        ("PUSHER_KEY", "k", "k"),
        ("PUSHER_CLUSTER", "eu", "eu"),
        ("PUSHER_BASE_URL", "http://127.0.0.1:4010", "http://127.0.0.1:4010"),
        ("PUSHER_USE_PRIVATE_CHANNELS", "0", False),
        ("PUSHER_MAX_PAYLOAD_BYTES", "10000", 10_000),
        ("PUSHER_DRY_RUN", "1", True),
        ("LOG_LEVEL", "debug", "debug"),
        ("LOG_FORMAT", "json", "json"),
        ("AUTOMATION_FIRST_DAY", "2000-01-01", date(2000, 1, 1)),
        ("AUTOMATION_FIRST_DAY", "2100-12-31", date(2100, 12, 31)),
    ],
)
def test_a_variable_is_read(variable: str, value: str, read: object) -> None:
    with only_variable_set(variable, value):
        assert getattr(load_settings(), variable.lower()) == read


def test_the_older_name_of_the_crm_url_is_also_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FICHE_API_URL", "https://old.test")
    assert load_settings().fiche_api_base_url == "https://old.test"


@pytest.mark.parametrize("base", ["https://new.test", ""])
def test_the_newer_name_takes_precedence_unless_it_is_empty(
    monkeypatch: pytest.MonkeyPatch, base: str
) -> None:
    monkeypatch.setenv("FICHE_API_URL", "https://old.test")
    monkeypatch.setenv("FICHE_API_BASE_URL", base)
    assert load_settings().fiche_api_base_url == (base or "https://old.test")


@pytest.mark.parametrize(
    ("older", "value", "name", "read"),
    [
        ("PORT", "8080", "api_port", 8080),
        ("NEXT_PUBLIC_PUSHER_KEY", "k", "pusher_key", "k"),
    ],
)
def test_older_variable_names_are_also_read(
    monkeypatch: pytest.MonkeyPatch, older: str, value: str, name: str, read: object
) -> None:
    monkeypatch.setenv(older, value)
    assert getattr(load_settings(), name) == read


@pytest.mark.parametrize("variable", ["API_AUTH_TOKENS", "API_AUTH_TOKEN"])
def test_machine_tokens_are_a_list_of_secrets(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "s3cret-s3cret-01, s3cret-s3cret-02")
    settings = load_settings()
    assert [token.get_secret_value() for token in settings.api_auth_tokens] == [
        "s3cret-s3cret-01",
        "s3cret-s3cret-02",
    ]
    assert "s3cret" not in repr(settings)


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    unset = load_settings()
    load_settings.cache_clear()
    for name in VARIABLES:
        monkeypatch.setenv(name, "")
    assert load_settings() == unset


@every_case(
    ("variable", "value", "why"),
    [
        ("DATABASE_URL", "mysql://db/work", "it must start with sqlite:/// or postgresql://"),
        ("DATABASE_URL", "work.db", "it must start with sqlite:/// or postgresql://"),
        (
            "DATABASE_URL",
            "postgresql://db:many/work",
            "its host or port cannot be read; characters such as / in",
        ),
        (
            "DATABASE_URL",
            f"postgresql://anna:{PASSWORD}@db/work",
            "its host or port cannot be read; characters",
        ),
        ("DATABASE_URL", "sqlite:///", "it must name a file: in memory, every command would see"),
        ("DATABASE_URL", "sqlite:///?timeout=5", "it must name a file"),
        ("DATABASE_URL", "sqlite:///:memory:", "it must name a file"),
        ("DATABASE_URL", "sqlite:///file::memory:?uri=true", "it must name a file"),
        ("DATABASE_URL", "sqlite:///file:x?mode=memory&uri=true", "it must name a file"),
        ("DATABASE_URL", "sqlite:///file:x?vfs=unix&uri=true", "it must name a file by its path"),
        ("AUTOMATION_HOME", "/dev/null", "it must be a folder that this user can open"),
        (
            "AUTOMATION_HOME",
            "~nobody-of-that-name/x",
            "it must be a folder that this user can open",
        ),
        ("REDIS_URL", "http://cache", "it must start with redis://, rediss:// or unix://"),
        ("REDIS_URL", "redis://cache:99999", "its host or port cannot be read"),
        ("FICHE_API_BASE_URL", "crm.test", "it must be an http:// or https:// address"),
        ("FICHE_API_BASE_URL", "ftp://crm.test", "it must be an http:// or https:// address"),
        ("FICHE_API_BASE_URL", "http://crm.test:many", "it must be an http:// or https:// address"),
        (
            "FICHE_API_BASE_URL",
            "http://crm.test?key=1",
            "it must be an address without user, query and fragment",
        ),
        (
            "FICHE_API_BASE_URL",
            "http://anna:pw@crm.test",
            "it must be an address without user, query and fragment",
        ),
        ("FICHE_API_URL", "crm.test", "it must be an http:// or https:// address"),
        (
            "FICHE_API_AUTH_TOKEN",
            f"{PASSWORD}\nX-Admin: 1",
            "it holds characters that cannot be sent",
        ),
        ("FICHE_API_AUTH_TOKEN", f"{PASSWORD}é", "it holds characters that cannot be sent"),
        ("FICHE_API_TIMEOUT_SECONDS", "0", "it should be greater than 0"),
        ("FICHE_API_TIMEOUT_SECONDS", "601", "it should be less than or equal to 600"),
        ("FICHE_FETCH_CONCURRENCY", "0", "it should be greater than or equal to 1"),
        ("FICHE_FETCH_CONCURRENCY", "501", "it should be less than or equal to 500"),
        ("FICHE_FETCH_CONCURRENCY", "ten", "it should be a valid integer"),
        ("FICHE_FETCH_CONCURRENCY", "1.5", "it should be a valid integer"),
        ("ELEVENLABS_API_KEY", f"{PASSWORD}é", "it holds characters that cannot be sent"),
        ("ELEVENLABS_BASE_URL", "ftp://speech.test", "it must be an http:// or https:// address"),
        (
            "TRANSCRIPTION_ELEVENLABS_RATE_LIMIT_PER_MINUTE",
            "0",
            "it should be greater than or equal to 1",
        ),
        (
            "TRANSCRIPTION_ELEVENLABS_RATE_LIMIT_PER_MINUTE",
            "100001",
            "it should be less than or equal to 100000",
        ),
        ("TRANSCRIPTION_ELEVENLABS_MAX_ATTEMPTS", "21", "it should be less than or equal to 20"),
        (
            "TRANSCRIPTION_ELEVENLABS_BACKOFF_BASE_SECONDS",
            "-1",
            "it should be greater than or equal to 0",
        ),
        (
            "TRANSCRIPTION_ELEVENLABS_BACKOFF_MAX_SECONDS",
            "inf",
            "it should be less than or equal to 86400",
        ),
        (
            "TRANSCRIPTION_RECORDING_WORKER_CONCURRENCY",
            "0",
            "it should be greater than or equal to 1",
        ),
        (
            "TRANSCRIPTION_RECORDING_PER_FICHE_CONCURRENCY",
            "501",
            "it should be less than or equal to 500",
        ),
        ("TRANSCRIPTION_MAX_WAIT_SECONDS", "29", "it should be greater than or equal to 30"),
        ("TRANSCRIPTION_LEASE_SECONDS", "4.9", "it should be greater than or equal to 5"),
        ("TRANSCRIPTION_LEASE_SECONDS", "3601", "it should be less than or equal to 3600"),
        ("TRANSCRIPTION_AUDIO_MAX_MEGABYTES", "0", "it should be greater than or equal to 1"),
        (
            "TRANSCRIPTION_PROGRESS_WEBHOOK_FREQUENCY",
            "0",
            "it should be greater than or equal to 1",
        ),
        ("TRANSCRIPTION_AUDIO_ALLOWED_ORIGINS", "calls.test", "it must be"),
        ("API_PORT", "65536", "it should be less than or equal to 65535"),
        ("PORT", "-1", "it should be greater than or equal to 0"),
        (
            "API_AUTH_TOKENS",
            "s3cret-s3cret-01,short",
            "each token must have at least 16 characters",
        ),
        ("API_AUTH_TOKEN", "short", "each token must have at least 16 characters"),
        ("API_MAX_BODY_MEGABYTES", "0", "it should be greater than or equal to 1"),
        ("API_TIMEOUT_SECONDS", "0", "it should be greater than 0"),
        ("API_SHUTDOWN_SECONDS", "601", "it should be less than or equal to 600"),
        ("JWT_ACCESS_SECRET", "s3cret", "value should have at least 32"),
        ("PUSHER_BASE_URL", "pusher.test", "it must be an http:// or https:// address"),
        ("PUSHER_MAX_PAYLOAD_BYTES", "999", "it should be greater than or equal to 1000"),
        ("LOG_LEVEL", "loud", "it should be 'debug', 'info', 'warning' or 'error'"),
        ("LOG_FORMAT", "xml", "it should be 'text' or 'json'"),
        ("AUTOMATION_FIRST_DAY", "0", "it must be a day written as YYYY-MM-DD"),
        ("AUTOMATION_FIRST_DAY", "20260101", "it must be a day written as YYYY-MM-DD"),
        ("AUTOMATION_FIRST_DAY", "2026-01-01T00:00:00", "it must be a day written as YYYY-MM-DD"),
        ("AUTOMATION_FIRST_DAY", "2026-02-30", "it should be a valid date"),
        ("AUTOMATION_FIRST_DAY", "1999-12-31", "it should be greater than or equal to 2000-01-01"),
        ("AUTOMATION_FIRST_DAY", "2101-01-01", "it should be less than or equal to 2100-12-31"),
        ("AUTOMATION_TIMEZONE", "Mars/Olympus", "'Mars/Olympus' is not a known time zone."),
    ],
)
def test_an_invalid_value_is_reported_in_one_sentence_with_the_variable(
    variable: str, value: str, why: str
) -> None:
    with only_variable_set(variable, value):
        sentence = error_message()
    assert sentence.startswith(f"{variable} cannot be used: {why}")
    assert sentence.endswith(".")
    assert not sentence.endswith("..")
    assert "\n" not in sentence
    assert "s3cret" not in sentence


def test_the_repr_of_the_settings_contains_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FICHE_API_AUTH_TOKEN", "s3cret")
    monkeypatch.setenv("ELEVENLABS_API_KEY", "s3cret")
    monkeypatch.setenv("DATABASE_URL", "postgresql://anna:s3cret@db/work")
    monkeypatch.setenv("REDIS_URL", "redis://:s3cret@cache/0")
    settings = load_settings()
    assert "s3cret" not in f"{settings!r} {settings!s}"


def test_the_environment_is_read_once() -> None:
    assert load_settings() is load_settings()


def test_the_configuration_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == configuration_page(), "run `make docs`"


def test_the_configuration_page_lists_every_variable_with_its_limits() -> None:
    page = configuration_page()
    for name in Settings.model_fields:
        assert f"| `{name.upper()}` |" in page
    assert "| `FICHE_FETCH_CONCURRENCY` | whole number from 1 to 500 | `10` |" in page
    assert "| `FICHE_API_AUTH_TOKEN` | secret | none |" in page


def test_every_setting_of_the_original_is_used_or_documented_as_unused() -> None:
    """Regression: some settings were accepted without any effect."""
    of_the_original = [
        "AUTOMATION_SCHEDULER_CRON",
        "AUTOMATION_SCHEDULER_WINDOW_MINUTES",
        "AUTOMATION_SCHEDULER_STALE_GRACE_MS",
        "AUTOMATION_STALE_THRESHOLD_MS",
        "AUTOMATION_MAX_RECORDINGS_PER_FICHE",
        "AUTOMATION_SEND_EVENT_CHUNK_SIZE",
        "AUTOMATION_FICHE_DETAILS_MAX_WAIT_MS",
        "AUTOMATION_FICHE_DETAILS_POLL_INTERVAL_SECONDS",
        "AUTOMATION_TRANSCRIPTION_MAX_WAIT_MS",
        "AUTOMATION_TRANSCRIPTION_POLL_INTERVAL_SECONDS",
        "AUTOMATION_AUDIT_MAX_WAIT_MS",
        "AUTOMATION_AUDIT_POLL_INTERVAL_SECONDS",
        "AUTOMATION_REVALIDATION_COOLDOWN_MS",
        "AUTOMATION_DEBUG_LOG_TO_FILE",
        "AUTOMATION_DAY_BATCH_SIZE",
        "AUTOMATION_DAY_CONCURRENCY",
        "AUTOMATION_FICHE_BATCH_SIZE",
        "AUTOMATION_DAY_PER_SCHEDULE_CONCURRENCY",
        "AUTOMATION_FICHE_WORKER_CONCURRENCY",
        "FICHE_SALES_CACHE_CONCURRENCY",
        "AUTOMATION_FICHE_WORKER_PER_SCHEDULE_CONCURRENCY",
        "FICHE_FETCH_CONCURRENCY",
        "FICHE_SALES_SEARCH_CONCURRENCY",
        "TRANSCRIPTION_LOCK_TTL_MS",
        "TRANSCRIPTION_FICHE_CONCURRENCY",
        "WORKFLOW_LOG_DB_ENABLED",
    ]
    used = {name.upper() for name in Settings.model_fields}
    assert [name for name in of_the_original if (name in used) == (name in UNUSED)] == []
    assert not used & set(UNUSED)
    named = unused_settings(
        {"AUTOMATION_SCHEDULER_CRON": "* * * * *", "WORKFLOW_LOG_DB_ENABLED": "", "PATH": "x"}
    )
    assert named == {
        "AUTOMATION_SCHEDULER_CRON": "the sensor `due_schedules` runs every 15 seconds"
    }
    assert all(
        f"| `{name}` | {reason} |" in configuration_page() for name, reason in UNUSED.items()
    )


@pytest.mark.parametrize(
    "receiver", ["PRICING", "PRICING_CRITICAL", "ORG_JOBS", "ORG_JOBS_CRITICAL"]
)
def test_a_pagerduty_receiver_requires_a_routing_key(
    monkeypatch: pytest.MonkeyPatch, receiver: str
) -> None:
    monkeypatch.setenv(f"{receiver}_ALERT_WEBHOOK_SHAPE", "pagerduty")
    assert error_message() == (
        "PAGERDUTY_ROUTING_KEY must be set where the shape of an alert webhook is pagerduty."
    )
    monkeypatch.setenv("PAGERDUTY_ROUTING_KEY", PASSWORD)
    assert PASSWORD not in repr(load_settings())
