"""From settings to the company registries. One without any of its variables is not called."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType

from pydantic import SecretStr

from automation_pipeline.core.coordination import Rate, RateLimiter
from automation_pipeline.core.errors import PermanentError
from automation_pipeline.core.meter import Meter
from automation_pipeline.core.settings import Settings
from automation_pipeline.enrichment.domain.knobs import Knobs
from automation_pipeline.enrichment.domain.vocabulary import SourceApi
from automation_pipeline.enrichment.ports import Registries, Registry, SharedLogin, Source

# What makes a registry configured: all of these, or none.
VARIABLES: Mapping[SourceApi, tuple[str, ...]] = MappingProxyType(
    {
        SourceApi.SEARCH: ("recherche_entreprises_base_url",),
        SourceApi.INPI: ("inpi_rne_base_url", "inpi_rne_username", "inpi_rne_password"),
        SourceApi.RCS: ("api_entreprise_base_url", "api_entreprise_token", "api_entreprise_recipient"),
    }
)


def open_registries(
    settings: Settings, now: Callable[[], datetime], meter: Meter, limiter: RateLimiter, login: SharedLogin
) -> Registries:
    """PermanentError names a variable that is missing beside others of its registry."""
    opened = {api: open_source(api, settings, now, meter, limiter, login) for api in SourceApi}
    sources = {api: source for api, source in opened.items() if source is not None}
    return Registries(sources, limiter, login.claims, registry_knobs(settings), meter)


def open_source(
    api: SourceApi,
    settings: Settings,
    now: Callable[[], datetime],
    meter: Meter,
    limiter: RateLimiter,
    login: SharedLogin | None = None,
) -> Source | None:
    """None where it is not configured. PermanentError: it is, but not wholly. Without a shared login it logs in."""
    given = _given(api, settings)
    if given is None:
        return None
    if api is SourceApi.SEARCH:
        rate, a_day = Rate(settings.recherche_entreprises_per_second, 1.0), None
        return Source(api, _search(*given, settings=settings, now=now, meter=meter), rate, a_day)
    if api is SourceApi.INPI:
        rate, a_day = Rate(settings.inpi_rne_per_minute, 60.0), settings.inpi_rne_calls_per_day
        inpi = _inpi(*given, settings=settings, now=now, meter=meter, limiter=limiter, login=login)
        return Source(api, inpi, rate, a_day)
    rate = Rate(settings.api_entreprise_per_second, 1.0)
    return Source(api, _api_entreprise(*given, settings=settings, now=now, meter=meter), rate)


def registry_knobs(settings: Settings) -> Knobs:
    return Knobs(
        freshness=timedelta(days=settings.enrichment_freshness_days),
        lock_seconds=settings.enrichment_lock_seconds,
        heartbeat_seconds=settings.enrichment_heartbeat_seconds,
        call_seconds=settings.enrichment_timeout_seconds,
        cooldown=timedelta(minutes=settings.enrichment_cooldown_minutes),
        optional_not_found_counts=settings.enrichment_optional_not_found == "failed",
    )


def _given(api: SourceApi, settings: Settings) -> tuple[str, ...] | None:
    """The values of its variables."""
    values = {name: _bare(getattr(settings, name)) for name in VARIABLES[api]}
    missing = [name.upper() for name, value in values.items() if not value]
    if len(missing) == len(values):
        return None
    if missing:
        there = next(name.upper() for name, value in values.items() if value)
        raise PermanentError(f"{missing[0]} is not set, though {there} is: {api} needs both.")
    return tuple(values.values())


def _bare(value: str | SecretStr | None) -> str:
    return value.get_secret_value() if isinstance(value, SecretStr) else value or ""


def _search(address: str, *, settings: Settings, now: Callable[[], datetime], meter: Meter) -> Registry:
    from automation_pipeline.clients.company_search import CompanySearch  # noqa: PLC0415  httpx only where it is used

    return CompanySearch(address, now=now, timeout_seconds=settings.enrichment_timeout_seconds, meter=meter)


def _inpi(  # noqa: PLR0913  three variables of one source
    address: str,
    username: str,
    password: str,
    *,
    settings: Settings,
    now: Callable[[], datetime],
    meter: Meter,
    limiter: RateLimiter,
    login: SharedLogin | None,
) -> Registry:
    from automation_pipeline.clients.inpi import InpiRegister  # noqa: PLC0415  httpx only where it is used
    from automation_pipeline.clients.inpi_login import Account  # noqa: PLC0415  the same

    seconds = settings.enrichment_timeout_seconds
    account = Account(username, password)
    return InpiRegister(address, account, now=now, limiter=limiter, shared=login, timeout_seconds=seconds, meter=meter)


def _api_entreprise(
    address: str, token: str, recipient: str, *, settings: Settings, now: Callable[[], datetime], meter: Meter
) -> Registry:
    from automation_pipeline.clients.api_entreprise import (  # noqa: PLC0415  httpx only where it is used
        Bearer,
        CommerceRegister,
        Purpose,
    )

    purpose = Purpose(recipient, settings.api_entreprise_context, settings.api_entreprise_object)
    seconds = settings.enrichment_timeout_seconds
    return CommerceRegister(address, Bearer(token), purpose, now=now, timeout_seconds=seconds, meter=meter)
