"""What this room needs of the outside world: the registries."""

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
    """One source. `fetch` makes one call (a login that is needed besides is not counted) and
    repeats nothing: attempts, waits, pace, breaker and quota are the caller's. Whatever the source
    does is a value. No text holds a secret."""

    async def fetch(self, siren: str, siret: str | None) -> SourceRecord | SourceError: ...

    async def check(self) -> None:
        """Nothing, when the source answers us; else an error that says what is wrong."""
        ...


class SharedTokens(Protocol):
    """The token of the last login at a source, for all processes. It stands in no log, error or
    event."""

    def current(self) -> str | None:
        """None where there is none, or it serves no longer."""
        ...

    def keep(self, token: str, until: datetime) -> None: ...

    def forget(self, token: str) -> None:
        """That one was refused. Another that somebody has got meanwhile stays."""
        ...


@dataclass(frozen=True)
class SharedLogin:
    """What processes share of a login: its token, and whose turn it is to get one."""

    tokens: SharedTokens
    claims: Claims


@dataclass(frozen=True)
class RegistrySource:
    """A source that is configured, with the pace that all processes keep together and its calls a
    day, if limited."""

    api: SourceApi
    registry: Registry
    rate: Rate
    calls_a_day: int | None = None


@dataclass(frozen=True)
class Registries:
    """Those that are configured, in the order of their calls; and what all processes share."""

    sources: Mapping[SourceApi, RegistrySource]
    limiter: RateLimiter
    claims: Claims
    knobs: EnrichmentOptions
    meter: Meter
