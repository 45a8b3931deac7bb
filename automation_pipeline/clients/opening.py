"""From settings to clients; each is only loaded where it is asked for."""

from collections.abc import Callable
from contextlib import aclosing
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from automation_pipeline.core.errors import PermanentError
from automation_pipeline.core.meter import Meter
from automation_pipeline.core.retry import Backoff
from automation_pipeline.core.settings import Settings

if TYPE_CHECKING:
    from automation_pipeline.audits.domain import knobs as audit_knobs
    from automation_pipeline.audits.ports import LanguageModel
    from automation_pipeline.fiches.ports import FicheSource
    from automation_pipeline.org_jobs.ports import HttpsCaller
    from automation_pipeline.pricing.domain.knobs import Knobs
    from automation_pipeline.pricing.ports import Storefront
    from automation_pipeline.transcription.domain.attempts import Knobs as SpeechKnobs
    from automation_pipeline.transcription.ports import SpeechToText


# Calls that failed together do not come back together.
JITTER = 0.2


def open_crm(settings: Settings, now: Callable[[], datetime], meter: Meter) -> "FicheSource":
    """PermanentError names the setting that is missing."""
    if settings.fiche_api_base_url is None:
        raise PermanentError("FICHE_API_BASE_URL is not set: it is the address of the CRM gateway.")
    from automation_pipeline.clients.crm import CrmClient  # noqa: PLC0415  httpx only where it is used

    token = settings.fiche_api_auth_token
    return CrmClient(
        settings.fiche_api_base_url,
        token.get_secret_value() if token else None,
        now=now,
        connections=settings.fiche_fetch_concurrency,
        timeout_seconds=settings.fiche_api_timeout_seconds,
        meter=meter,
    )


def open_model(settings: Settings, now: Callable[[], datetime], meter: Meter) -> "LanguageModel":
    from automation_pipeline.clients.llm import ChatCompletions  # noqa: PLC0415  httpx only where it is used

    key = settings.llm_api_key
    return ChatCompletions(
        key.get_secret_value() if key else None,
        settings.llm_base_url,
        model=settings.llm_model,
        temperature=settings.llm_temperature,
        now=now,
        timeout_seconds=settings.llm_timeout_seconds,
        connections=settings.llm_max_concurrency,
        meter=meter,
    )


def open_speech(settings: Settings, now: Callable[[], datetime], meter: Meter) -> "SpeechToText":
    from automation_pipeline.clients.audio import AudioLimits  # noqa: PLC0415  httpx only where it is used
    from automation_pipeline.clients.elevenlabs import ElevenLabsSpeechToText  # noqa: PLC0415  the same

    key = settings.elevenlabs_api_key
    return ElevenLabsSpeechToText(
        key.get_secret_value() if key else None,
        settings.elevenlabs_base_url,
        now=now,
        at_once=settings.transcription_recording_worker_concurrency,
        audio_limits=AudioLimits(max_megabytes=settings.transcription_audio_max_megabytes),
        audio_origins=settings.transcription_audio_allowed_origins,
        meter=meter,
    )


def open_storefront(settings: Settings, now: Callable[[], datetime], meter: Meter) -> "Storefront":
    """PermanentError names the setting that is missing."""
    address, token = settings.shop_api_base_url, settings.shop_api_token
    if address is None:
        raise PermanentError("SHOP_API_BASE_URL is not set: it is the address of the shop whose prices are changed.")
    if token is None or not token.get_secret_value():
        raise PermanentError("SHOP_API_TOKEN is not set: it is the access token of the shop's Admin API.")
    from automation_pipeline.clients.shop import ShopifyShop  # noqa: PLC0415  httpx only where it is used
    from automation_pipeline.pricing.ports import Storefront  # noqa: PLC0415  the same

    def shop() -> aclosing[ShopifyShop]:
        opened = ShopifyShop(
            address,
            token.get_secret_value(),
            version=settings.shop_api_version,
            now=now,
            timeout_seconds=settings.shop_timeout_seconds,
            connections=settings.worker_max_concurrency,
            meter=meter,
        )
        return aclosing(opened)

    return Storefront(host_of(address), shop, shop_knobs(settings), meter)


def opens_https_caller(settings: Settings, meter: Meter) -> "Callable[[], HttpsCaller]":
    """Opens it when it is called first, the same one from then on."""

    @cache
    def opened() -> "HttpsCaller":
        from automation_pipeline.clients.https_call import (  # noqa: PLC0415  httpx only where it is used
            HttpsCallClient,
            HttpsGuard,
        )

        return HttpsCallClient(HttpsGuard(exceptions=settings.org_jobs_https_allowed_origins), meter=meter)

    return opened


def shop_knobs(settings: Settings) -> "Knobs":
    from automation_pipeline.pricing.domain.knobs import Knobs  # noqa: PLC0415  only where it is asked for

    return Knobs(
        calls_at_once=settings.worker_max_concurrency,
        call_seconds=settings.shop_timeout_seconds,
        lease_seconds=settings.pricing_lease_seconds,
        reconciles=settings.worker_enable_reconciliation,
        time_zone=settings.automation_timezone,
    )


def speech_knobs(settings: Settings) -> "SpeechKnobs":
    from automation_pipeline.transcription.domain.attempts import Knobs as SpeechKnobs  # noqa: PLC0415  only where it is asked for

    return SpeechKnobs(
        per_minute=settings.transcription_elevenlabs_rate_limit_per_minute,
        max_attempts=settings.transcription_elevenlabs_max_attempts,
        backoff=Backoff(
            base_seconds=settings.transcription_elevenlabs_backoff_base_seconds,
            cap_seconds=settings.transcription_elevenlabs_backoff_max_seconds,
            jitter=JITTER,
        ),
        lease_seconds=settings.transcription_lease_seconds,
        per_fiche=settings.transcription_recording_per_fiche_concurrency,
        progress_every=settings.transcription_progress_webhook_frequency,
    )


def judge_knobs(settings: Settings) -> "audit_knobs.Knobs":
    from automation_pipeline.audits.domain import knobs as audit_knobs  # noqa: PLC0415  only where it is asked for

    return audit_knobs.Knobs(
        per_minute=settings.llm_rate_limit_per_minute,
        attempts=settings.llm_max_attempts,
        backoff=Backoff(
            base_seconds=settings.llm_backoff_base_seconds, cap_seconds=settings.llm_backoff_max_seconds, jitter=JITTER
        ),
        steps_at_once=settings.audit_step_concurrency,
        max_prompt_characters=settings.llm_max_prompt_characters,
        lease_seconds=settings.audit_lease_seconds,
        rounds=settings.audit_tool_rounds,
        gating=audit_knobs.GatingRules(settings.audit_evidence_gating, settings.audit_evidence_min_quote_chars),
        excerpt=audit_knobs.ExcerptRules(settings.audit_step_timeline_excerpt, settings.audit_step_timeline_max_chunks),
    )


def host_of(address: str) -> str:
    """The host, with the port where the address names one: `shop.example.com`, `127.0.0.1:8090`."""
    parts = urlsplit(address)
    host = parts.hostname or ""
    shown = f"[{host}]" if ":" in host else host
    return shown if parts.port is None else f"{shown}:{parts.port}"
