"""Scripted registries, and in-memory claims and rate limits that use the test's clock."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from automation_pipeline.core.coordination import Claim, ClaimHolder, Rate
from automation_pipeline.enrichment.models import (
    CompanyFields,
    ErrorCode,
    SourceApi,
    SourceError,
    SourceRecord,
)
from automation_pipeline_tests.fakes.clock import FakeClock

SEARCH, INPI, RCS = SourceApi.SEARCH, SourceApi.INPI, SourceApi.RCS
SIREN = "552032534"
# Part of a source document that must not appear in any log line or event.
SECRET = "Jeanne Secret, 1960"

Answer = SourceRecord | SourceError | Callable[[], object]
_USUAL_FIELDS = {
    SEARCH: {
        "legal_name": "DANONE",
        "city": "PARIS",
        "naf_code": "70.10Z",
        "siret": "55203253400646",
    },
    INPI: {"legal_name": "Danone SA", "legal_form": "5510", "country_code": "FR"},
    RCS: {"rcs_city": "PARIS", "registry_name": "Greffe de Paris"},
}


def source_record(source: SourceApi, *, is_masked: bool = False, **given: object) -> SourceRecord:
    """The usual record of a source with these fields changed; None removes a field."""
    fields = _USUAL_FIELDS[source] | given
    document = {
        "officers": [SECRET],
        "fields": {name: str(value) for name, value in fields.items()},
    }
    return SourceRecord(
        siren=SIREN, fields=CompanyFields(**fields), document=document, is_masked=is_masked
    )


def source_error(
    code: str, status: int | None = None, *, after: float | None = None
) -> SourceError:
    """An error of a source. Only temporary errors are retryable, as in the contract."""
    temporary = {
        ErrorCode.TIMEOUT,
        ErrorCode.RATE_LIMIT,
        ErrorCode.UPSTREAM_5XX,
        ErrorCode.SOURCE_UNAVAILABLE,
    }
    return SourceError(
        error_code=ErrorCode(code),
        message=f"The source answered {code}.",
        http_status=status,
        retryable=code in temporary,
        retry_after_seconds=after,
    )


NOT_FOUND = source_error("NOT_FOUND", 200)
UNKNOWN = source_error("NOT_FOUND", 404)
SILENT = source_error("TIMEOUT")
DOWN = source_error("UPSTREAM_5XX", 503)
BUSY = source_error("RATE_LIMIT", 429, after=2.0)


class KilledError(BaseException):
    """Stands for the death of a process."""


@dataclass
class ScriptedRegistry:
    """Returns the answers of its script, one per call, and `always` after the last one. A function in the
    script runs in a thread during the call, before the next answer."""

    source: SourceApi
    always: SourceRecord | SourceError
    script: list[Answer] = field(default_factory=list)
    calls: list[tuple[str, str | None]] = field(default_factory=list)

    async def fetch(self, siren: str, siret: str | None) -> SourceRecord | SourceError:
        self.calls.append((siren, siret))
        while self.script and callable(self.script[0]):
            await asyncio.to_thread(self.script.pop(0))
        return self.script.pop(0) if self.script else self.always

    async def check(self) -> None:
        return None


class ClockedClaims:
    """Claims that expire by the test's clock. Owners in `dead_owners` release nothing."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock, self._tokens = clock, 0
        self._held: dict[str, tuple[Claim, datetime]] = {}
        self.dead_owners: set[str] = set()

    def take(self, key: str, owner: str, ttl_seconds: float) -> Claim | None:
        if self.holder(key) is not None:
            return None
        self._tokens += 1
        lease = Claim(key, owner, self._tokens)
        self._held[key] = lease, self._clock.now() + timedelta(seconds=ttl_seconds)
        return lease

    def extend(self, lease: Claim, ttl_seconds: float) -> bool:
        if not self._is_held(lease):
            return False
        self._held[lease.key] = lease, self._clock.now() + timedelta(seconds=ttl_seconds)
        return True

    def release(self, lease: Claim) -> bool:
        if not self._is_held(lease) or lease.owner in self.dead_owners:
            return False
        del self._held[lease.key]
        return True

    def holder(self, key: str) -> ClaimHolder | None:
        held = self._held.get(key)
        if held is None or held[1] <= self._clock.now():
            return None
        lease, until = held
        return ClaimHolder(lease.owner, lease.token, (until - self._clock.now()).total_seconds())

    def _is_held(self, lease: Claim) -> bool:
        holder = self.holder(lease.key)
        return holder is not None and holder.token == lease.token


@dataclass
class CountingLimiter:
    """Counts reservations. Callers wait for their turn by the test's clock if `is_enforced`, else not at
    all."""

    clock: FakeClock
    is_enforced: bool = False
    reserved: dict[str, int] = field(default_factory=dict)
    _next_starts: dict[str, datetime] = field(default_factory=dict)

    def reserve(
        self, key: str, rate: Rate, *, max_wait_seconds: float | None = None
    ) -> float | None:
        now = self.clock.now()
        starts = max(self._next_starts.get(key, now), now)
        wait = (starts - now).total_seconds() if self.is_enforced else 0.0
        if max_wait_seconds is not None and wait > max_wait_seconds:
            return None
        self._next_starts[key] = starts + timedelta(seconds=rate.interval_seconds)
        self.reserved[key] = self.reserved.get(key, 0) + 1
        return wait
