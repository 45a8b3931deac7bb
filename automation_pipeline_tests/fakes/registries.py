"""Company registries in memory (`enrichment.models.Registry`).
`enrichment/test_registry_contract.py` runs them and the real clients through the same tests."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from automation_pipeline.core.coordination import Rate
from automation_pipeline.core.errors import PermanentError
from automation_pipeline.core.metrics import Meter
from automation_pipeline.core.retry import Backoff
from automation_pipeline.enrichment.models import (
    CompanyFields,
    EnrichmentOptions,
    ErrorCode,
    Registries,
    RegistrySource,
    SourceApi,
    SourceError,
    SourceRecord,
)
from automation_pipeline.storage.claims import DatabaseClaims
from automation_pipeline.storage.database import Database

SIREN = "552032534"
EXAMPLE = CompanyFields(
    legal_name="DANONE",
    address_line1="17 BOULEVARD HAUSSMANN",
    postal_code="75009",
    city="PARIS",
    active_status="A",
)
NO_BACKOFF = EnrichmentOptions(backoff=Backoff(base_seconds=0, cap_seconds=0))
_RETRYABLE = {
    ErrorCode.TIMEOUT,
    ErrorCode.SOURCE_UNAVAILABLE,
    ErrorCode.RATE_LIMIT,
    ErrorCode.UPSTREAM_5XX,
}


def record(siren: str = SIREN, **given: Any) -> SourceRecord:
    """The record of DANONE, with these fields replaced."""
    fields = replace(EXAMPLE, **given)
    return SourceRecord(
        siren=siren, fields=fields, document={"siren": siren, "name": fields.legal_name}
    )


def error(
    code: ErrorCode, status: int | None = None, retry_after: float | None = None
) -> SourceError:
    return SourceError(
        error_code=code,
        message=f"The registry said {code}.",
        http_status=status,
        retryable=code in _RETRYABLE,
        retry_after_seconds=retry_after,
    )


TIMEOUT = error(ErrorCode.TIMEOUT)
NOT_FOUND = error(ErrorCode.NOT_FOUND, 404)
UPSTREAM = error(ErrorCode.UPSTREAM_5XX, 503)
RATE_LIMIT = error(ErrorCode.RATE_LIMIT, 429)


class FakeRegistry:
    """Returns the companies that a test has added; any other company is not found. `calls` lists the
    SIREN and SIRET of each call in order. `before` is awaited at the beginning of each call, where a
    test can block it."""

    def __init__(self, *records: SourceRecord, unknown_status: int = 404) -> None:
        self.calls: list[tuple[str, str | None]] = []
        self.before: Callable[[str], Awaitable[None]] | None = None
        self._known = {each.siren: each for each in records}
        self._unknown = error(ErrorCode.NOT_FOUND, unknown_status)
        self._next: dict[str, list[SourceRecord | SourceError]] = {}
        self._always: dict[str, SourceError] = {}
        self._refusal: SourceError | None = None

    def add(self, *records: SourceRecord) -> None:
        self._known |= {each.siren: each for each in records}

    def script(self, siren: str, *outcomes: SourceRecord | SourceError) -> None:
        """The next calls for the SIREN have these outcomes, one per call."""
        self._next.setdefault(siren, []).extend(outcomes)

    def fail_always(self, siren: str, error: SourceError) -> None:
        self._always[siren] = error

    def refuse_everything(self, error: SourceError | None) -> None:
        """Every call returns this error, until this method is called with None."""
        self._refusal = error

    async def fetch(self, siren: str, siret: str | None) -> SourceRecord | SourceError:
        self.calls.append((siren, siret))
        if self.before is not None:
            await self.before(siren)
        if self._refusal is not None:
            return self._refusal
        if outcomes := self._next.get(siren):
            return outcomes.pop(0)
        return self._always.get(siren) or self._known.get(siren) or self._unknown

    async def check(self) -> None:
        if self._refusal is not None:
            raise PermanentError(self._refusal.message)


class UnlimitedRate:
    """A rate limiter without waits. `keys` lists the keys of the calls."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    def reserve(
        self, key: str, rate: Rate, *, max_wait_seconds: float | None = None
    ) -> float | None:
        self.keys.append(key)
        return 0.0


def registries(
    database: Database,
    fakes: dict[SourceApi, FakeRegistry],
    *,
    options: EnrichmentOptions = NO_BACKOFF,
    calls_a_day: int | None = None,
) -> Registries:
    """These registries without rate limits; the leases are in the database."""
    sources = {
        api: RegistrySource(api, fakes[api], Rate(1000, 1.0), calls_a_day)
        for api in SourceApi
        if api in fakes
    }
    return Registries(sources, UnlimitedRate(), DatabaseClaims(database), options, Meter())
