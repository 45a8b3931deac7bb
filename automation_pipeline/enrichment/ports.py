"""The ports of enrichment: the registers and their shared logins."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from automation_pipeline.core.coordination import Claims, Rate, RateLimiter
from automation_pipeline.core.metrics import Meter
from automation_pipeline.enrichment.models import (
    EnrichmentOptions,
    SourceApi,
    SourceError,
    SourceRecord,
)


class Registry(Protocol):
    """A source. `fetch` makes one call, and a login if necessary, without retries: the caller
    applies the rate limit, the quota and the circuit breaker, and retries. Errors of the source are
    values. No text contains a secret."""

    async def fetch(self, siren: str, siret: str | None) -> SourceRecord | SourceError: ...

    async def check(self) -> None:
        """Raises an error that says what is wrong if the source does not answer."""
        ...


class SharedTokens(Protocol):
    """The token of the last login at a source, shared by all processes. No log, error or event contains it."""

    def current(self) -> str | None:
        """Return the token, or None without a valid one."""
        ...

    def keep(self, token: str, until: datetime) -> None: ...

    def forget(self, token: str) -> None:
        """Forget a token that the source refused. A newer token of another process stays."""
        ...


@dataclass(frozen=True)
class SharedLogin:
    """The shared token of a login, and the claims that let one process at a time log in."""

    tokens: SharedTokens
    claims: Claims


@dataclass(frozen=True)
class RegistrySource:
    """A configured source, with the rate and the daily quota of all processes together."""

    api: SourceApi
    registry: Registry
    rate: Rate
    calls_a_day: int | None = None


@dataclass(frozen=True)
class Registries:
    """The configured sources, in the order of their calls, and what all processes share."""

    sources: Mapping[SourceApi, RegistrySource]
    limiter: RateLimiter
    claims: Claims
    options: EnrichmentOptions
    meter: Meter
