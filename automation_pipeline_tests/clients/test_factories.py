"""Clients and options created from the settings."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from operator import attrgetter
from typing import Any

import pytest
from pydantic import SecretStr

from automation_pipeline.audits.models.audits import ExcerptOptions, GatingOptions
from automation_pipeline.automation.fetching import FetchOptions
from automation_pipeline.automation.transcribing import WorkOptions
from automation_pipeline.bootstrap import Services
from automation_pipeline.clients.audio import AudioLimits
from automation_pipeline.clients.factories import (
    audit_options,
    host_of,
    open_crm,
    open_model,
    open_speech,
    pricing_options,
    registry_options,
    speech_options,
)
from automation_pipeline.core.clock import SystemClock
from automation_pipeline.core.coordination import Rate
from automation_pipeline.core.errors import PermanentError
from automation_pipeline.core.metrics import Meter
from automation_pipeline.core.settings import Settings
from automation_pipeline.enrichment.models import EnrichmentOptions, Registries, SourceApi
from automation_pipeline.orchestration.automation_runs import batch_context, fetch_options
from automation_pipeline.pricing.models.shop import ShopOptions, Storefront
from automation_pipeline_tests.cases import every_case

TOKEN = SecretStr("shpat_s3cret")


def storefront(**settings: object) -> Storefront:
    both = {"shop_api_base_url": "http://127.0.0.1:9/hidden", "shop_api_token": TOKEN}
    return Services(Settings().model_copy(update={**both, **settings})).storefront


@every_case(
    ("missing", "message"),
    [
        ({"shop_api_base_url": None}, "SHOP_API_BASE_URL is not set"),
        ({"shop_api_token": None}, "SHOP_API_TOKEN is not set"),
        ({"shop_api_token": SecretStr("")}, "SHOP_API_TOKEN is not set"),
    ],
)
def test_a_shop_needs_a_base_url_and_a_token(missing: dict[str, object], message: str) -> None:
    with pytest.raises(PermanentError, match=f"^{message}: "):
        storefront(**missing)


def test_a_storefront_is_named_by_its_host_and_uses_its_settings() -> None:
    settings = {
        "worker_max_concurrency": 7,
        "shop_timeout_seconds": 12.5,
        "pricing_lease_seconds": 60.0,
        "worker_enable_reconciliation": False,
    }
    store = storefront(**settings)
    assert store.name == "127.0.0.1:9"
    assert store.options == ShopOptions(
        calls_at_once=7, call_seconds=12.5, lease_seconds=60.0, reconciles=False
    )


def test_a_shop_client_is_opened_and_closed_per_event_loop() -> None:
    store = storefront()

    async def visit() -> bool:
        async with store.open() as shop:
            called = await shop.prices(["1"])
            return called.failure is not None and "ConnectError" in called.failure.message

    assert [asyncio.run(visit()) for _ in range(2)] == [True, True]
    assert store.meter.drain()["provider_calls_total", 'provider="shop",status="ConnectError"'] == 2


@every_case(
    ("address", "host"),
    [
        ("https://Example.MyShopify.com", "example.myshopify.com"),
        ("https://shop.test:8443/", "shop.test:8443"),
        ("http://127.0.0.1:8090/sim/shop", "127.0.0.1:8090"),
        ("http://[::1]:8090", "[::1]:8090"),
        ("http://[::1]", "[::1]"),
    ],
)
def test_a_url_is_reduced_to_its_host(address: str, host: str) -> None:
    assert host_of(address) == host


SETTING_OF: Mapping[str, Mapping[str, str]] = {
    "shop": {
        "calls_at_once": "worker_max_concurrency",
        "call_seconds": "shop_timeout_seconds",
        "lease_seconds": "pricing_lease_seconds",
    },
    "speech": {
        "per_minute": "transcription_elevenlabs_rate_limit_per_minute",
        "max_attempts": "transcription_elevenlabs_max_attempts",
        "backoff.base_seconds": "transcription_elevenlabs_backoff_base_seconds",
        "backoff.cap_seconds": "transcription_elevenlabs_backoff_max_seconds",
        "lease_seconds": "transcription_lease_seconds",
        "per_fiche": "transcription_recording_per_fiche_concurrency",
        "progress_every": "transcription_progress_webhook_frequency",
    },
    "audits": {
        "per_minute": "llm_rate_limit_per_minute",
        "attempts": "llm_max_attempts",
        "backoff.base_seconds": "llm_backoff_base_seconds",
        "backoff.cap_seconds": "llm_backoff_max_seconds",
        "steps_at_once": "audit_step_concurrency",
        "max_prompt_characters": "llm_max_prompt_characters",
        "lease_seconds": "audit_lease_seconds",
        "rounds": "audit_tool_rounds",
        "gating.min_quote_characters": "audit_evidence_min_quote_chars",
        "excerpt.max_chunks": "audit_step_timeline_max_chunks",
    },
    "registries": {
        "lock_seconds": "enrichment_lock_seconds",
        "heartbeat_seconds": "enrichment_heartbeat_seconds",
        "call_seconds": "enrichment_timeout_seconds",
    },
}


def test_each_option_is_read_from_its_own_setting() -> None:
    names = [setting for options in SETTING_OF.values() for setting in options.values()]
    values = {name: 1000 + number for number, name in enumerate(names)}
    settings = Settings().model_copy(update=values)
    options = {
        "shop": pricing_options(settings),
        "speech": speech_options(settings),
        "audits": audit_options(settings),
        "registries": registry_options(settings),
    }
    found = {
        setting: attrgetter(option)(options[system])
        for system, settings_of in SETTING_OF.items()
        for option, setting in settings_of.items()
    }
    assert found == values


def test_boolean_options_are_read_from_their_settings() -> None:
    for is_on in (True, False):
        settings = Settings().model_copy(
            update={
                "audit_evidence_gating": is_on,
                "audit_step_timeline_excerpt": not is_on,
                "worker_enable_reconciliation": is_on,
                "enrichment_optional_not_found": "failed" if is_on else "ignored",
            }
        )
        audits = audit_options(settings)
        assert (audits.gating.enabled, audits.excerpt.enabled) == (is_on, not is_on)
        assert pricing_options(settings).reconciles is is_on
        assert registry_options(settings).optional_not_found_counts is is_on


def test_the_clients_of_providers_use_their_settings() -> None:
    settings = Settings().model_copy(
        update={
            "fiche_api_base_url": "https://crm.test",
            "fiche_api_auth_token": SecretStr("crm-token"),
            "fiche_fetch_concurrency": 7,
            "fiche_api_timeout_seconds": 8.0,
            "llm_api_key": SecretStr("llm-key"),
            "llm_base_url": "https://llm.test/v1",
            "llm_model": "a-model",
            "llm_temperature": 0.5,
            "llm_timeout_seconds": 9.0,
            "elevenlabs_api_key": SecretStr("speech-key"),
            "transcription_recording_worker_concurrency": 11,
            "transcription_audio_max_megabytes": 12,
        }
    )
    now, meter = SystemClock().now, Meter()
    crm: Any = open_crm(settings, now, meter)
    assert (crm.at_once, crm._http.timeout.read, str(crm._http.base_url)) == (
        7,
        8,
        "https://crm.test/api/",
    )
    assert crm._http.headers["Authorization"] == "Bearer crm-token"
    with pytest.raises(PermanentError, match=r"^FICHE_API_BASE_URL is not set: "):
        open_crm(settings.model_copy(update={"fiche_api_base_url": None}), now, meter)
    model: Any = open_model(settings, now, meter)
    assert (model.name, model._temperature, model._http.timeout.read) == ("a-model", 0.5, 9)
    assert (str(model._root), model._key) == ("https://llm.test/v1", "llm-key")
    speech: Any = open_speech(settings, now, meter)
    assert (speech.at_once, speech._key, speech._audio._limits.max_megabytes) == (
        11,
        "speech-key",
        12,
    )


def test_options_have_their_defaults_without_settings() -> None:
    settings = Settings()
    assert registry_options(settings) == EnrichmentOptions()
    assert registry_options(settings).freshness == timedelta(days=30)
    assert registry_options(settings).cooldown == timedelta(minutes=15)
    assert pricing_options(settings) == ShopOptions()
    audits = audit_options(settings)
    assert (audits.gating, audits.excerpt) == (GatingOptions(), ExcerptOptions())
    assert (audits.repairs, audits.rounds) == (2, 8)
    assert AudioLimits().max_megabytes == settings.transcription_audio_max_megabytes


def test_run_options_have_the_timeouts_and_limits_of_the_settings() -> None:
    settings = Settings().model_copy(
        update={
            "database_url": "sqlite://",
            "automation_fiche_details_max_wait_ms": 1500,
            "automation_max_recordings_per_fiche": 3,
            "automation_fiche_details_poll_interval_seconds": 4.0,
            "automation_transcription_max_wait_ms": 5500,
            "automation_audit_max_wait_ms": 6500,
            "automation_transcription_poll_interval_seconds": 7.0,
            "audit_run_concurrency": 8,
            "automation_audit_poll_interval_seconds": 9.0,
        }
    )
    services = Services(settings)
    assert fetch_options(services) == FetchOptions(1.5, 3, 4.0)
    work = batch_context(services, "owner", 1).options
    # Transcription ends 1.5 + 5.5 s after the start of the run, audits 6.5 s later.
    assert work == WorkOptions(7.0, 13.5, 7.0, 8, 9.0, transcribes_ahead=True)
    assert work.stall_seconds == 27.0


SEARCH = {"recherche_entreprises_base_url": "http://127.0.0.1:9/search"}
INPI = {
    "inpi_rne_base_url": "http://127.0.0.1:9/inpi",
    "inpi_rne_username": "anna",
    "inpi_rne_password": SecretStr("s3cret"),
}
RCS = {
    "api_entreprise_base_url": "http://127.0.0.1:9/entreprise",
    "api_entreprise_token": SecretStr("s3cret"),
    "api_entreprise_recipient": "13002526500013",
}
NONE = dict.fromkeys((*SEARCH, *INPI, *RCS), None)


def services(**settings: object) -> Services:
    in_memory = {"database_url": "sqlite://", "redis_url": None}
    return Services(Settings().model_copy(update={**NONE, **in_memory, **settings}))


def opened(**settings: object) -> Registries:
    return services(**settings).registries


@every_case(
    ("settings", "called"),
    [
        ({}, []),
        (SEARCH, [SourceApi.SEARCH]),
        (RCS | SEARCH, [SourceApi.SEARCH, SourceApi.RCS]),
        (RCS | INPI | SEARCH, [SourceApi.SEARCH, SourceApi.INPI, SourceApi.RCS]),
    ],
)
def test_configured_registries_are_called_in_a_fixed_order(
    settings: dict[str, object], called: list[SourceApi]
) -> None:
    assert list(opened(**settings).sources) == called


def test_each_registry_has_a_rate_and_inpi_a_daily_limit() -> None:
    sources = opened(**SEARCH, **INPI, **RCS).sources
    assert [(one.rate, one.calls_a_day) for one in sources.values()] == [
        (Rate(6, 1.0), None),
        (Rate(170, 60.0), 9_500),
        (Rate(4, 1.0), None),
    ]


@every_case(
    ("whole", "missing"),
    [(whole, name) for whole in (INPI, RCS) for name in whole],
)
def test_a_partial_configuration_names_the_missing_variable(
    whole: dict[str, object], missing: str
) -> None:
    half = {name: value for name, value in whole.items() if name != missing}
    with pytest.raises(PermanentError, match=f"^{missing.upper()} is not set, though ") as caught:
        opened(**SEARCH, **half)
    assert "s3cret" not in str(caught.value)


def test_an_empty_secret_counts_as_missing() -> None:
    with pytest.raises(
        PermanentError, match=r"^INPI_RNE_PASSWORD is not set, though INPI_RNE_BASE_URL is"
    ):
        opened(**INPI | {"inpi_rne_password": SecretStr("")})


def test_a_registry_opens_although_another_is_partially_configured() -> None:
    both = services(**SEARCH, inpi_rne_username="anna")
    assert both.registry(SourceApi.SEARCH) is not None
    assert both.registry(SourceApi.RCS) is None
    with pytest.raises(PermanentError, match="INPI_RNE_BASE_URL"):
        both.registry(SourceApi.INPI)


def test_registry_options_are_read_from_the_settings() -> None:
    assert registry_options(Settings().model_copy(update=NONE)) == EnrichmentOptions()
    options = registry_options(
        Settings().model_copy(update={"enrichment_optional_not_found": "not_applicable"})
    )
    assert options.optional_not_found_counts is False
