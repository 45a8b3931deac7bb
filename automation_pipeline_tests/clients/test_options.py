"""From settings to the options of external systems and of steps: each option follows its own
setting."""

from collections.abc import Mapping
from datetime import timedelta
from operator import attrgetter

from automation_pipeline.audits.models.audits import ExcerptOptions, GatingOptions
from automation_pipeline.automation.fetching import FetchOptions
from automation_pipeline.automation.ports import WorkOptions
from automation_pipeline.bootstrap import Services
from automation_pipeline.clients.audio import AudioLimits
from automation_pipeline.clients.factories import (
    audit_options,
    pricing_options,
    registry_options,
    speech_options,
)
from automation_pipeline.core.settings import Settings
from automation_pipeline.enrichment.models import EnrichmentOptions
from automation_pipeline.orchestration.batch_context import batch_context, fetch_knobs
from automation_pipeline.pricing.models.shop import ShopOptions

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


def test_each_option_follows_its_own_setting() -> None:
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


def test_switches_follow_their_settings() -> None:
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


def test_without_settings_the_options_are_their_defaults() -> None:
    settings = Settings()
    assert registry_options(settings) == EnrichmentOptions()
    assert registry_options(settings).freshness == timedelta(days=30)
    assert registry_options(settings).cooldown == timedelta(minutes=15)
    assert pricing_options(settings) == ShopOptions()
    audits = audit_options(settings)
    assert (audits.gating, audits.excerpt) == (GatingOptions(), ExcerptOptions())
    assert (audits.repairs, audits.rounds) == (2, 8)
    assert AudioLimits().max_megabytes == settings.transcription_audio_max_megabytes


def test_a_step_of_a_run_has_the_times_and_limits_of_its_settings() -> None:
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
    assert fetch_knobs(services) == FetchOptions(1.5, 3, 4.0)
    work = batch_context(services, "owner", 1).knobs
    assert work == WorkOptions(5.5, 6.5, 7.0, 8, 9.0)
    assert work.stall_seconds == 27.0
