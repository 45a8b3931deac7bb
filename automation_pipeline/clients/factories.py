"""Makes clients and options from the settings. Each client is imported when it is first needed."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pydantic import SecretStr

from automation_pipeline.core.coordination import Rate, RateLimiter
from automation_pipeline.core.errors import PermanentError, TransientError
from automation_pipeline.core.events import Event
from automation_pipeline.core.metrics import Meter
from automation_pipeline.core.retry import Backoff
from automation_pipeline.core.settings import Settings

# A step of a run imports only the packages whose clients it uses.
if TYPE_CHECKING:
    from automation_pipeline.audits.models import audits as audit_models
    from automation_pipeline.audits.models.chat import LanguageModel
    from automation_pipeline.automation.ports import (
        EventPublisher,
        MailSender,
        PublishResult,
        RealtimeClient,
    )
    from automation_pipeline.clients.registries import ConnectionOptions
    from automation_pipeline.enrichment.models import (
        EnrichmentOptions,
        Registries,
        RegistrySource,
        SharedLogin,
        SourceApi,
    )
    from automation_pipeline.fiches.models.fiches import FicheSource
    from automation_pipeline.pricing.models.shop import ShopOptions, Storefront
    from automation_pipeline.transcription.models import SpeechOptions, SpeechToText


# Jitter: calls that failed at the same time retry at different times.
JITTER = 0.2


def open_crm(settings: Settings, now: Callable[[], datetime], meter: Meter) -> "FicheSource":
    if settings.fiche_api_base_url is None:
        raise PermanentError("FICHE_API_BASE_URL is not set: it is the address of the CRM gateway.")
    from automation_pipeline.clients.crm import CrmClient  # noqa: PLC0415  httpx only where it is used

    return CrmClient(
        settings.fiche_api_base_url,
        _text(settings.fiche_api_auth_token),
        now=now,
        connections=settings.fiche_fetch_concurrency,
        timeout_seconds=settings.fiche_api_timeout_seconds,
        meter=meter,
    )


def open_model(settings: Settings, now: Callable[[], datetime], meter: Meter) -> "LanguageModel":
    from automation_pipeline.clients.llm import ChatCompletions  # noqa: PLC0415  httpx only where it is used

    return ChatCompletions(
        _text(settings.llm_api_key),
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
    from automation_pipeline.clients.elevenlabs import ElevenLabsSpeechToText  # noqa: PLC0415  only where it is used

    return ElevenLabsSpeechToText(
        _text(settings.elevenlabs_api_key),
        settings.elevenlabs_base_url,
        now=now,
        at_once=settings.transcription_recording_worker_concurrency,
        audio_limits=AudioLimits(max_megabytes=settings.transcription_audio_max_megabytes),
        audio_origins=settings.transcription_audio_allowed_origins,
        meter=meter,
    )


def open_storefront(settings: Settings, now: Callable[[], datetime], meter: Meter) -> "Storefront":
    address, token = settings.shop_api_base_url, _text(settings.shop_api_token)
    if address is None:
        raise PermanentError(
            "SHOP_API_BASE_URL is not set: it is the address of the shop whose prices are changed."
        )
    if not token:
        raise PermanentError(
            "SHOP_API_TOKEN is not set: it is the access token of the shop's Admin API."
        )
    from automation_pipeline.clients.shop import ShopifyShop  # noqa: PLC0415  httpx only where it is used
    from automation_pipeline.pricing.models.shop import Storefront  # noqa: PLC0415  only where it is used

    def shop() -> aclosing[ShopifyShop]:
        return aclosing(
            ShopifyShop(
                address,
                token,
                version=settings.shop_api_version,
                now=now,
                timeout_seconds=settings.shop_timeout_seconds,
                connections=settings.worker_max_concurrency,
                meter=meter,
            )
        )

    return Storefront(host_of(address), shop, pricing_options(settings), meter)


def pricing_options(settings: Settings) -> "ShopOptions":
    from automation_pipeline.pricing.models.shop import ShopOptions  # noqa: PLC0415  only where it is used

    return ShopOptions(
        calls_at_once=settings.worker_max_concurrency,
        call_seconds=settings.shop_timeout_seconds,
        lease_seconds=settings.pricing_lease_seconds,
        reconciles=settings.worker_enable_reconciliation,
        time_zone=settings.automation_timezone,
    )


def speech_options(settings: Settings) -> "SpeechOptions":
    from automation_pipeline.transcription.models import SpeechOptions  # noqa: PLC0415  only where it is used

    return SpeechOptions(
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


def audit_options(settings: Settings) -> "audit_models.AuditOptions":
    from automation_pipeline.audits.models import audits as audit_models  # noqa: PLC0415  only where it is used

    return audit_models.AuditOptions(
        per_minute=settings.llm_rate_limit_per_minute,
        attempts=settings.llm_max_attempts,
        backoff=Backoff(
            base_seconds=settings.llm_backoff_base_seconds,
            cap_seconds=settings.llm_backoff_max_seconds,
            jitter=JITTER,
        ),
        steps_at_once=settings.audit_step_concurrency,
        max_prompt_characters=settings.llm_max_prompt_characters,
        lease_seconds=settings.audit_lease_seconds,
        rounds=settings.audit_tool_rounds,
        gating=audit_models.GatingOptions(
            settings.audit_evidence_gating, settings.audit_evidence_min_quote_chars
        ),
        excerpt=audit_models.ExcerptOptions(
            settings.audit_step_timeline_excerpt, settings.audit_step_timeline_max_chunks
        ),
    )


def host_of(address: str) -> str:
    """The host, with the port where the address names one: `shop.example.com`, `127.0.0.1:8090`."""
    parts = urlsplit(address)
    return _in_brackets(parts.hostname) + ("" if parts.port is None else f":{parts.port}")


def _in_brackets(host: str | None) -> str:
    return f"[{host}]" if host and ":" in host else host or ""


def _text(secret: SecretStr | None) -> str | None:
    return secret.get_secret_value() if secret else None


# By source name, the variables of the register. The register is configured if all are set.
VARIABLES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "API_RECHERCHE_ENTREPRISES": ("recherche_entreprises_base_url",),
        "INPI_RNE": ("inpi_rne_base_url", "inpi_rne_username", "inpi_rne_password"),
        "API_ENTREPRISE_RCS": (
            "api_entreprise_base_url",
            "api_entreprise_token",
            "api_entreprise_recipient",
        ),
    }
)


def open_registries(
    settings: Settings,
    now: Callable[[], datetime],
    meter: Meter,
    limiter: RateLimiter,
    login: "SharedLogin",
) -> "Registries":
    """Raises PermanentError if a registry is only partly configured."""
    from automation_pipeline.enrichment.models import Registries, SourceApi  # noqa: PLC0415  only where it is used

    opened = {api: open_source(api, settings, now, meter, limiter, login) for api in SourceApi}
    sources = {api: source for api, source in opened.items() if source is not None}
    return Registries(sources, limiter, login.claims, registry_options(settings), meter)


def open_source(
    api: "SourceApi",
    settings: Settings,
    now: Callable[[], datetime],
    meter: Meter,
    limiter: RateLimiter,
    login: "SharedLogin | None" = None,
) -> "RegistrySource | None":
    """None if the registry is not configured. Raises PermanentError if it is only partly configured.
    Without a shared `login` it has its own."""
    from automation_pipeline.enrichment.models import RegistrySource, SourceApi  # noqa: PLC0415  only where it is used

    values = _configured_values(api, settings)
    if values is None:
        return None
    seconds = settings.enrichment_timeout_seconds
    connection: ConnectionOptions = {"now": now, "timeout_seconds": seconds, "meter": meter}
    if api is SourceApi.INPI:
        from automation_pipeline.clients.inpi import Account, InpiRegister  # noqa: PLC0415  httpx only where it is used

        address, *account = values
        inpi = InpiRegister(address, Account(*account), limiter=limiter, shared=login, **connection)
        rate = Rate(settings.inpi_rne_per_minute, 60.0)
        return RegistrySource(api, inpi, rate, settings.inpi_rne_calls_per_day)
    from automation_pipeline.clients.registries import CommerceRegister, CompanySearch, Purpose  # noqa: PLC0415  only where it is used

    if api is SourceApi.SEARCH:
        search = CompanySearch(values[0], **connection)
        return RegistrySource(api, search, Rate(settings.recherche_entreprises_per_second, 1.0))
    address, token, recipient = values
    purpose = Purpose(recipient, settings.api_entreprise_context, settings.api_entreprise_object)
    register = CommerceRegister(address, token, purpose, **connection)
    return RegistrySource(api, register, Rate(settings.api_entreprise_per_second, 1.0))


def registry_options(settings: Settings) -> "EnrichmentOptions":
    from automation_pipeline.enrichment.models import EnrichmentOptions  # noqa: PLC0415  only where it is used

    return EnrichmentOptions(
        freshness=timedelta(days=settings.enrichment_freshness_days),
        lock_seconds=settings.enrichment_lock_seconds,
        heartbeat_seconds=settings.enrichment_heartbeat_seconds,
        call_seconds=settings.enrichment_timeout_seconds,
        cooldown=timedelta(minutes=settings.enrichment_cooldown_minutes),
        optional_not_found_counts=settings.enrichment_optional_not_found == "failed",
    )


def _configured_values(api: str, settings: Settings) -> tuple[str, ...] | None:
    values: dict[str, str] = {}
    for name in VARIABLES[api]:
        value = getattr(settings, name)
        values[name.upper()] = (_text(value) if isinstance(value, SecretStr) else value) or ""
    missing = [name for name, value in values.items() if not value]
    if len(missing) == len(values):
        return None
    if missing:
        present = next(name for name, value in values.items() if value)
        raise PermanentError(f"{missing[0]} is not set, though {present} is: {api} needs both.")
    return tuple(values.values())


def open_mail(settings: Settings) -> "MailSender | None":
    """None without a mail server or a sender address."""
    sender = settings.smtp_from or settings.smtp_user
    if settings.smtp_host is None or sender is None:
        return None
    from automation_pipeline.clients.smtp import MailServer, SmtpMail  # noqa: PLC0415  only where it is configured

    server = MailServer(
        host=settings.smtp_host,
        port=settings.smtp_port,
        secure=settings.smtp_secure,
        sender=sender,
        user=settings.smtp_user,
        password=_text(settings.smtp_pass),
        seconds=settings.smtp_timeout_ms / 1000,
    )
    return SmtpMail(server)


def open_realtime(
    settings: Settings, now: Callable[[], datetime], meter: Meter
) -> "RealtimeClient | None":
    """None if no Pusher setting is set. Raises PermanentError if only some of the four are set."""
    required = {
        "PUSHER_APP_ID": settings.pusher_app_id,
        "PUSHER_KEY": settings.pusher_key,
        "PUSHER_SECRET": _text(settings.pusher_secret),
        "PUSHER_CLUSTER": settings.pusher_cluster,
    }
    missing = [name for name, value in required.items() if not value]
    if len(missing) == len(required):
        return None
    if missing:
        names = ", ".join(missing)
        raise PermanentError(f"Realtime events need all four settings of Pusher: {names} not set")
    from automation_pipeline.clients.pusher import PusherApp, PusherChannels  # noqa: PLC0415  only where it is used

    app_id, key, secret, cluster = (value or "" for value in required.values())
    host, port, encrypted = _pusher_address(settings.pusher_base_url)
    return PusherChannels(
        PusherApp(
            app_id=app_id,
            key=key,
            secret=secret,
            cluster=cluster,
            host=host,
            port=port,
            encrypted=encrypted,
            meter=meter,
        ),
        now=now,
        private=settings.pusher_use_private_channels,
        max_bytes=settings.pusher_max_payload_bytes,
        dry_run=settings.pusher_dry_run,
    )


def open_publisher(
    open_client: "Callable[[], RealtimeClient | None]",
) -> "EventPublisher | None":
    """With incomplete settings, events wait until they are completed. Webhooks and e-mails are not
    affected."""
    try:
        return open_client()
    except PermanentError as error:
        return _UnconfiguredPublisher(str(error))


class _UnconfiguredPublisher:
    def __init__(self, reason: str) -> None:
        self._reason = reason

    async def publish(self, events: Sequence[Event]) -> "PublishResult":
        from automation_pipeline.automation.ports import PublishResult  # noqa: PLC0415  only where it is used

        return PublishResult(0, TransientError(self._reason)) if events else PublishResult(0)


def _pusher_address(base_url: str | None) -> tuple[str | None, int | None, bool]:
    if base_url is None:
        return None, None, True
    parts = urlsplit(base_url)
    if parts.path.strip("/"):
        raise PermanentError("PUSHER_BASE_URL must be an address without a path")
    return _in_brackets(parts.hostname), parts.port, parts.scheme == "https"
