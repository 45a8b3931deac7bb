"""Values of enrichment: the contract's words, identifiers, what sources say, requests and how they
are shown."""

import re
from collections.abc import Container, Mapping
from dataclasses import dataclass, field, fields
from datetime import date, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field

from automation_pipeline.core.errors import InvalidInputError, PermanentError
from automation_pipeline.core.json_model import Id, Instant, JsonModel, parse
from automation_pipeline.core.retry import Backoff
from automation_pipeline.core.state_machine import StateMachine

PRODUCER = "M3"
DEFAULT_TENANT = "main"


class SourceApi(StrEnum):
    """In the order in which they are called."""

    SEARCH = "API_RECHERCHE_ENTREPRISES"
    INPI = "INPI_RNE"
    RCS = "API_ENTREPRISE_RCS"


REQUIRED_SOURCES = (SourceApi.SEARCH,)
OPTIONAL_SOURCES = (SourceApi.INPI, SourceApi.RCS)


class ErrorCode(StrEnum):
    MISSING_COMPANY_IDENTIFIER = "MISSING_COMPANY_IDENTIFIER"
    INVALID_SIREN_FORMAT = "INVALID_SIREN_FORMAT"
    INVALID_SIRET_FORMAT = "INVALID_SIRET_FORMAT"
    SIREN_SIRET_MISMATCH = "SIREN_SIRET_MISMATCH"
    AUTH_ERROR = "AUTH_ERROR"
    FORBIDDEN = "FORBIDDEN"
    NOT_FOUND = "NOT_FOUND"
    RATE_LIMIT = "RATE_LIMIT"
    TIMEOUT = "TIMEOUT"
    UPSTREAM_5XX = "UPSTREAM_5XX"
    SOURCE_UNAVAILABLE = "SOURCE_UNAVAILABLE"
    INTERNAL_ERROR = "INTERNAL_ERROR"


class EnrichmentTrigger(StrEnum):
    REQUEST_CREATED = "REQUEST_CREATED"
    REQUEST_OPENED = "REQUEST_OPENED"
    MANUAL_REFRESH = "MANUAL_REFRESH"
    STALE_SWEEP = "STALE_SWEEP"


class DocumentType(StrEnum):
    ENTERPRISE_SEARCH = "ENTERPRISE_SEARCH"
    RNE_FORMALITY = "RNE_FORMALITY"
    RCS_EXTRACT = "RCS_EXTRACT"


DOCUMENT_TYPES = {
    SourceApi.SEARCH: DocumentType.ENTERPRISE_SEARCH,
    SourceApi.INPI: DocumentType.RNE_FORMALITY,
    SourceApi.RCS: DocumentType.RCS_EXTRACT,
}


class CallStatus(StrEnum):
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"


class JobState(StrEnum):
    """PENDING: asked for. RUNNING: begun, maybe by somebody who died. DONE: its outcome is the
    enrichment's status."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    DONE = "DONE"


class Asked(StrEnum):
    """What became of a request for enrichment."""

    CACHE_HIT = "CACHE_HIT"
    ATTACHED = "ATTACHED"
    ENQUEUED = "ENQUEUED"


class EnrichmentStatus(StrEnum):
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCESS = "SUCCESS"
    PARTIAL = "PARTIAL"
    FAILED = "FAILED"
    STALE = "STALE"


_S = EnrichmentStatus

# A fresh SUCCESS that a user refreshes goes through STALE. A job that its required source makes
# wait goes back to PENDING, or to STALE where there is a snapshot.
ENRICHMENT = StateMachine(
    name="enrichment",
    moves={
        _S.PENDING: frozenset({_S.RUNNING}),
        _S.RUNNING: frozenset({_S.SUCCESS, _S.PARTIAL, _S.FAILED, _S.PENDING, _S.STALE}),
        _S.SUCCESS: frozenset({_S.STALE}),
        _S.PARTIAL: frozenset({_S.STALE, _S.RUNNING}),
        _S.FAILED: frozenset({_S.RUNNING}),
        _S.STALE: frozenset({_S.RUNNING}),
    },
)


INVALID_IDENTIFIER = "Invalid company identifier"
LA_POSTE = "356000000"
_SEPARATORS = re.compile(r"[\s.\u00a0\u202f-]")
_SIREN, _SIRET = re.compile(r"[0-9]{9}"), re.compile(r"[0-9]{14}")


class IdentifierError(InvalidInputError):
    """`code` is the contract's word for what is wrong."""

    def __init__(self, code: ErrorCode, field: str, problem: str) -> None:
        super().__init__(INVALID_IDENTIFIER, ((field, problem),))
        self.code = code


@dataclass(frozen=True)
class Identifiers:
    """`siren` is derived where only a SIRET was given. `warnings`: check digits that are wrong, as
    sentences."""

    siren: str
    siret: str | None = None
    warnings: tuple[str, ...] = ()


def parse_identifiers(
    siren_raw: str | None, siret_raw: str | None, *, strict: bool = False
) -> Identifiers:
    """IdentifierError: nothing is given, a format is wrong, or the two are of different
    companies."""
    siren, siret = _digits(siren_raw), _digits(siret_raw)
    if siren is None and siret is None:
        raise IdentifierError(
            ErrorCode.MISSING_COMPANY_IDENTIFIER, "siren", "a SIREN or a SIRET is required"
        )
    if siren is not None and (not _SIREN.fullmatch(siren) or not int(siren)):
        raise IdentifierError(
            ErrorCode.INVALID_SIREN_FORMAT, "siren", "must be nine digits, not all of them zero"
        )
    if siret is not None and (not _SIRET.fullmatch(siret) or not int(siret[:9])):
        raise IdentifierError(
            ErrorCode.INVALID_SIRET_FORMAT, "siret", "must be fourteen digits, after a real SIREN"
        )
    if siren is not None and siret is not None and not siret.startswith(siren):
        raise IdentifierError(ErrorCode.SIREN_SIRET_MISMATCH, "siret", "must begin with the SIREN")
    found = siren or (siret or "")[:9]
    warnings = tuple(_check_digit_warnings(found, siret))
    if strict and warnings:
        code = (
            ErrorCode.INVALID_SIREN_FORMAT
            if not is_siren_sound(found)
            else ErrorCode.INVALID_SIRET_FORMAT
        )
        raise IdentifierError(
            code, "siren" if code is ErrorCode.INVALID_SIREN_FORMAT else "siret", warnings[0]
        )
    return Identifiers(found, siret, warnings)


def is_siren_sound(siren: str) -> bool:
    return _luhn(siren)


def is_siret_sound(siret: str) -> bool:
    """Those of La Poste's offices follow a rule of their own."""
    return _luhn(siret) or (siret.startswith(LA_POSTE) and sum(map(int, siret)) % 5 == 0)


def vat_number(siren: str) -> str:
    return f"FR{(12 + 3 * (int(siren) % 97)) % 97:02d}{siren}"


def _check_digit_warnings(siren: str, siret: str | None) -> list[str]:
    told: list[str] = []
    if not is_siren_sound(siren):
        told.append(f"the check digit of the SIREN {siren} is wrong")
    if siret is not None and not is_siret_sound(siret):
        told.append(f"the check digit of the SIRET {siret} is wrong")
    return told


def _digits(raw: str | None) -> str | None:
    bare = _SEPARATORS.sub("", raw) if raw is not None else ""
    return bare or None


def _luhn(digits: str) -> bool:
    """From the right every second digit is doubled; nine is taken off what is more than nine."""
    doubled = (int(digit) * (1 + place % 2) for place, digit in enumerate(reversed(digits)))
    return sum(value - 9 if value > 9 else value for value in doubled) % 10 == 0


@dataclass(frozen=True, kw_only=True)
class CompanyFields:
    """Normalised: NAF with its dot, two letters for the country, codes, no labels. None: not said,
    or masked."""

    siret: str | None = None
    legal_name: str | None = None
    trade_name: str | None = None
    brand_name: str | None = None
    legal_form: str | None = None
    creation_date: date | None = None
    active_status: str | None = None
    address_line1: str | None = None
    address_line2: str | None = None
    postal_code: str | None = None
    city: str | None = None
    country_code: str | None = None
    naf_code: str | None = None
    naf_label: str | None = None
    headcount_range: str | None = None
    rcs_city: str | None = None
    registry_name: str | None = None


FIELDS = tuple(one.name for one in fields(CompanyFields))


@dataclass(frozen=True, kw_only=True)
class SourceRecord:
    """`document` is what the source answered, without what changes by itself. `is_masked`: it may
    not tell all. `warnings` are sentences about the establishment that was asked for."""

    siren: str
    said: CompanyFields
    document: Mapping[str, object]
    is_masked: bool = False
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SourceError:
    """One call that failed. `retry_after_seconds` is what the source asked for. `is_ours`: we did
    not make the call, which says nothing of the source. `not_before`: the source asks every caller
    to wait until then."""

    error_code: ErrorCode
    message: str
    http_status: int | None = None
    retryable: bool = False
    retry_after_seconds: float | None = None
    is_ours: bool = False
    not_before: datetime | None = field(default=None, compare=False)

    def document(self, source: SourceApi) -> dict[str, object]:
        return {
            "error_code": self.error_code,
            "source_api": source,
            "http_status": self.http_status,
            "message": self.message,
            "retryable": self.retryable,
        }


@dataclass(frozen=True, kw_only=True)
class SourceOutcome:
    """What a source came to in a job, after its retries. One of record and error is there."""

    source: SourceApi
    duration_ms: int
    attempts: int = 1
    record: SourceRecord | None = None
    error: SourceError | None = None

    @property
    def status(self) -> CallStatus:
        return CallStatus.FAILED if self.record is None else CallStatus.SUCCESS

    @property
    def is_unknown(self) -> bool:
        """The source answers that there is no such company."""
        return self.error is not None and self.error.error_code is ErrorCode.NOT_FOUND

    @property
    def was_called(self) -> bool:
        return self.attempts > 0

    @property
    def has_failed(self) -> bool:
        """Not: it has answered that it does not know the company."""
        return self.error is not None and not self.is_unknown


@dataclass(frozen=True)
class Snapshot:
    """A company as it is consolidated: each field with the source that said it."""

    siren: str
    values: CompanyFields
    sources: Mapping[str, SourceApi] = field(default_factory=dict[str, SourceApi])
    is_masked: bool = False


_Raw = Annotated[str, Field(max_length=64)]


class RequestInput(JsonModel):
    """At least one of the two. `strict`: a wrong check digit is refused instead of warned of."""

    siren: _Raw | None = Field(default=None, examples=["552032534"])
    siret: _Raw | None = Field(default=None, examples=["55203253400646"])
    strict: bool = False


@dataclass(frozen=True)
class WantedCompany:
    identifiers: Identifiers
    raw: Mapping[str, str | None]


def parse_request(given: Mapping[str, object]) -> WantedCompany:
    """InvalidInputError, or IdentifierError where the numbers are wrong."""
    said = parse(RequestInput, given, INVALID_IDENTIFIER)
    identifiers = parse_identifiers(said.siren, said.siret, strict=said.strict)
    return WantedCompany(identifiers, {"siren": said.siren, "siret": said.siret})


@dataclass(frozen=True, kw_only=True)
class EnrichmentAnswer:
    """`job_id` of the job that is waited for; None: the answer is there."""

    request_id: int
    siren: str
    asked: Asked
    status: EnrichmentStatus
    job_id: int | None = None
    warnings: tuple[str, ...] = ()


class JobSourceView(JsonModel):
    source_api: SourceApi
    status: CallStatus
    http_status: int | None
    error_code: str | None
    error_message: str | None
    attempts: int
    duration_ms: int
    fetched_at: Instant


class JobView(JsonModel):
    """`status` is there once it is done. `not_before`: a required source asks to wait until
    then."""

    id: Id
    company_siren: str
    trigger: EnrichmentTrigger
    state: JobState
    status: EnrichmentStatus | None
    attempt: int
    started_at: Instant | None
    heartbeat_at: Instant | None
    not_before: Instant | None
    finished_at: Instant | None
    sources_success_count: int
    required_failed_count: int
    optional_failed_count: int
    core_identity_present: bool | None
    enrichment_error: str | None
    changes: dict[str, Any] | None  # Any: JSON
    created_at: Instant
    sources: tuple[JobSourceView, ...] = ()


class CompanyView(JsonModel):
    """`field_sources` says where each value comes from. `is_masked`: the register may not tell
    all."""

    siren: str
    siret: str | None
    legal_name: str
    trade_name: str | None
    brand_name: str | None
    legal_form: str | None
    creation_date: date | None
    active_status: str | None
    address_line1: str | None
    address_line2: str | None
    postal_code: str | None
    city: str | None
    country_code: str | None
    naf_code: str | None
    naf_label: str | None
    headcount_range: str | None
    rcs_city: str | None
    registry_name: str | None
    is_masked: bool
    vat_number: str
    updated_at: Instant
    field_sources: dict[str, str]


class DocumentView(JsonModel):
    id: Id
    doc_type: str
    source_api: SourceApi
    retrieved_at: Instant
    checksum: str


class RetrievalView(JsonModel):
    source_api: SourceApi
    last_retrieved_at: Instant
    last_status: CallStatus
    last_http_status: int | None
    last_error: str | None


class CompanyRequestView(JsonModel):
    id: Id
    tenant_id: str
    company_siren: str
    siren: str
    siret: str | None
    warnings: tuple[str, ...]
    enrichment_status: EnrichmentStatus
    enrichment_last_run_at: Instant | None
    enrichment_error: str | None
    created_by: str
    created_at: Instant
    updated_at: Instant


class RequestView(JsonModel):
    """`enrichment_running`: a job of the SIREN is open, and the answer may be another soon."""

    request: CompanyRequestView
    company: CompanyView | None
    documents: tuple[DocumentView, ...]
    source_retrievals: tuple[RetrievalView, ...]
    enrichment_running: bool
    job_id: Id | None


class SourceView(JsonModel):
    """How a source stands: resting until then, and its calls of today (UTC)."""

    source_api: SourceApi
    resting_until: Instant | None
    reason: str | None
    failures: int
    calls_today: int


NOT_CONFIGURED = "RECHERCHE_ENTREPRISES_BASE_URL is not set: it is the register without which no company is found."


def is_configured(sources: Container[SourceApi]) -> bool:
    return all(source in sources for source in REQUIRED_SOURCES)


def check_configured(sources: Container[SourceApi]) -> None:
    """PermanentError: without its required source an enrichment can only fail."""
    if not is_configured(sources):
        raise PermanentError(NOT_CONFIGURED)


@dataclass(frozen=True, kw_only=True)
class EnrichmentOptions:
    """`optional_not_found_counts`: a company that an optional registry does not know is a failure
    of that source."""

    freshness: timedelta = timedelta(days=30)
    lock_seconds: float = 120.0
    heartbeat_seconds: float = 30.0
    call_seconds: float = 5.0
    max_retries: int = 2
    backoff: Backoff = field(
        default_factory=lambda: Backoff(base_seconds=0.25, cap_seconds=0.5, jitter=0.2)
    )
    longest_retry_after_seconds: float = 5.0
    sync_seconds: float = 1.1
    cooldown: timedelta = timedelta(minutes=15)
    max_attempts: int = 3
    optional_not_found_counts: bool = True


CALLS = "enrichment_source_calls_total"
ENDED_JOBS = "enrichment_jobs_total"
DURATION_MS = "enrichment_duration_ms"
LATENCY_MS = "enrichment_source_latency_ms"
RATE_LIMITED = "enrichment_rate_limited_total"
REQUESTS = "enrichment_asked_total"
LOST_LEASES = "enrichment_lost_leases_total"


def claim_key(siren: str) -> str:
    return f"company_enrichment:{siren}"
