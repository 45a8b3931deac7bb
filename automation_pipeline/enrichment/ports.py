"""What enrichment needs of the registers."""

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
    """A source. `fetch` makes one call, besides a login, and repeats nothing: its caller keeps the
    pace, the quota and the breaker, and retries. Faults of the source are values. No text holds a
    secret."""

    async def fetch(self, siren: str, siret: str | None) -> SourceRecord | SourceError: ...

    async def check(self) -> None:
        """Raises an error that says what is wrong if the source does not answer."""
        ...


class SharedTokens(Protocol):
    """The token of the last login at a source, for all processes. No log, error or event holds
    it."""

    def current(self) -> str | None:
        """None if there is none that is valid."""
        ...

    def keep(self, token: str, until: datetime) -> None: ...

    def forget(self, token: str) -> None:
        """The source refused this token. A newer token of another process stays."""
        ...


@dataclass(frozen=True)
class SharedLogin:
    """The token of a login, and the claims that let one process log in."""

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
