"""Values of company enrichment: the codes of the contract, company identifiers, records of sources, requests,
response models, and the ports of the registers."""

import re
from collections.abc import Container, Mapping
from dataclasses import dataclass, field, fields
from datetime import date, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Protocol, cast

from pydantic import ConfigDict, Field, field_validator

from automation_pipeline.core.coordination import Claims, Rate, RateLimiter
from automation_pipeline.core.errors import InvalidInputError, PermanentError
from automation_pipeline.core.json_model import Id, Instant, JsonModel, parse
from automation_pipeline.core.metrics import Meter
from automation_pipeline.core.retry import Backoff
from automation_pipeline.core.state_machine import StateMachine

PRODUCER = "M3"
DEFAULT_TENANT = "main"


class SourceApi(StrEnum):
    """The registers, in the order of their calls."""

    SEARCH = "API_RECHERCHE_ENTREPRISES"
    INPI = "INPI_RNE"
    RCS = "API_ENTREPRISE_RCS"


REQUIRED_SOURCES = (SourceApi.SEARCH,)


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
    """PENDING: requested. RUNNING: a worker has started it, and may have died since. DONE: it has
    ended, and its `status` is the result."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    DONE = "DONE"


class RequestOutcome(StrEnum):
    """CACHE_HIT: the stored snapshot answers the request. ATTACHED: the request waits for an open job.
    ENQUEUED: the request created a job."""

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
# The statuses of a company whose last enrichment stored a snapshot.
GOOD_STATUSES = frozenset({_S.SUCCESS, _S.PARTIAL})

# A refresh of a fresh SUCCESS goes through STALE. While a job waits for its required source, the company
# is PENDING again, or STALE if it has a snapshot.
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
    """`code` is the error code of the contract."""

    def __init__(self, code: ErrorCode, field: str, problem: str) -> None:
        super().__init__(INVALID_IDENTIFIER, ((field, problem),))
        self.code = code


@dataclass(frozen=True)
class Identifiers:
    """`siren` is the beginning of the SIRET if only a SIRET was given. `warnings` are sentences about
    wrong check digits."""

    siren: str
    siret: str | None = None
    warnings: tuple[str, ...] = ()


def parse_identifiers(
    siren_raw: str | None, siret_raw: str | None, *, strict: bool = False
) -> Identifiers:
    """Raises IdentifierError if nothing is given, a format is wrong, the two belong to different
    companies, or (with `strict`) a check digit is wrong."""
    siren, siret = (_SEPARATORS.sub("", raw or "") or None for raw in (siren_raw, siret_raw))
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
    company = siren or (siret or "")[:9]
    problems: list[tuple[ErrorCode, str, str]] = []
    if not is_luhn_valid(company):
        problem = f"the check digit of the SIREN {company} is wrong"
        problems.append((ErrorCode.INVALID_SIREN_FORMAT, "siren", problem))
    if siret is not None and not is_siret_valid(siret):
        problem = f"the check digit of the SIRET {siret} is wrong"
        problems.append((ErrorCode.INVALID_SIRET_FORMAT, "siret", problem))
    if strict and problems:
        raise IdentifierError(*problems[0])
    return Identifiers(company, siret, tuple(problem for _, _, problem in problems))


def is_luhn_valid(digits: str) -> bool:
    """Whether the last digit is the Luhn check digit of the number."""
    # Every second digit from the right is doubled.
    doubled = (int(digit) * (1 + index % 2) for index, digit in enumerate(reversed(digits)))
    return sum(value - 9 if value > 9 else value for value in doubled) % 10 == 0


def is_siret_valid(siret: str) -> bool:
    """Whether the check digit is right. The establishments of La Poste have a check of their own."""
    return is_luhn_valid(siret) or (siret.startswith(LA_POSTE) and sum(map(int, siret)) % 5 == 0)


def vat_number(siren: str) -> str:
    return f"FR{(12 + 3 * (int(siren) % 97)) % 97:02d}{siren}"


@dataclass(frozen=True, kw_only=True)
class CompanyFields:
    """Normalised values: the NAF code with its dot, the country as two letters, codes instead of
    labels. A field is None if the source does not provide it or hides it."""

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
    """The answer of a source about a company. `document` is the answer without its volatile entries.
    `is_masked`: the source hides some values. `warnings` are sentences about the requested
    establishment."""

    siren: str
    fields: CompanyFields
    document: Mapping[str, object]
    is_masked: bool = False
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SourceError:
    """A failed call. `retry_after_seconds` comes from the source. `is_local`: this system refused the
    call itself, so the error says nothing about the source. `not_before`: when callers may call the
    source again."""

    error_code: ErrorCode
    message: str
    http_status: int | None = None
    retryable: bool = False
    retry_after_seconds: float | None = None
    is_local: bool = False
    not_before: datetime | None = field(default=None, compare=False)


@dataclass(frozen=True, kw_only=True)
class SourceOutcome:
    """The result of a source in a job after all retries: either a record or an error."""

    source: SourceApi
    duration_ms: int
    attempts: int = 1
    record: SourceRecord | None = None
    error: SourceError | None = None

    @property
    def status(self) -> CallStatus:
        return CallStatus.FAILED if self.record is None else CallStatus.SUCCESS

    @property
    def http_status(self) -> int | None:
        return 200 if self.error is None else self.error.http_status

    @property
    def error_code(self) -> ErrorCode | None:
        return None if self.error is None else self.error.error_code

    @property
    def is_unknown(self) -> bool:
        """The source does not know the company."""
        return self.error_code is ErrorCode.NOT_FOUND

    @property
    def was_called(self) -> bool:
        return self.attempts > 0

    @property
    def has_failed(self) -> bool:
        """Whether the source gave no answer. An unknown company is an answer."""
        return self.error is not None and not self.is_unknown


@dataclass(frozen=True)
class Snapshot:
    """The merged data of a company, with the source of each field."""

    siren: str
    values: CompanyFields
    sources: Mapping[str, SourceApi] = field(default_factory=dict[str, SourceApi])
    is_masked: bool = False


_Raw = Annotated[str, Field(max_length=64)]


class RequestInput(JsonModel):
    """At least one of the two numbers is given. `strict`: a wrong check digit is an error instead
    of a warning."""

    siren: _Raw | None = Field(default=None, examples=["552032534"])
    siret: _Raw | None = Field(default=None, examples=["55203253400646"])
    strict: bool = False


@dataclass(frozen=True)
class WantedCompany:
    identifiers: Identifiers
    raw: RequestInput


def parse_request(given: Mapping[str, object]) -> WantedCompany:
    """Raises InvalidInputError, or IdentifierError if the numbers are wrong."""
    raw = parse(RequestInput, given, INVALID_IDENTIFIER)
    return WantedCompany(parse_identifiers(raw.siren, raw.siret, strict=raw.strict), raw)


@dataclass(frozen=True, kw_only=True)
class Requester:
    """The tenant and the actor that a request records."""

    tenant_id: str
    correlation_id: str
    actor: str
    idempotency_key: str | None = None


@dataclass(frozen=True, kw_only=True)
class EnrichmentAnswer:
    """`job_id` is the open job that the request waits for; None if the stored snapshot answers it."""

    request_id: int
    siren: str
    outcome: RequestOutcome
    status: EnrichmentStatus
    job_id: int | None = None
    warnings: tuple[str, ...] = ()


class ContractModel(JsonModel):
    """A response model of `/v1`. JSON uses the names of the fields, as the events do."""

    model_config = ConfigDict(alias_generator=str)


class JobSourceShown(ContractModel):
    source_api: SourceApi
    status: CallStatus
    http_status: int | None
    error_code: str | None
    error_message: str | None
    attempts: int
    duration_ms: int
    fetched_at: Instant


# A docstring of one of these models would be a description in the OpenAPI document. The `status` of a
# job is set when the job is done; a job waits for a required source until `not_before`.
class EnrichmentJobShown(ContractModel):
    id: Id
    company_siren: str
    # A string with these values, because runs have a type of the same name.
    trigger: str = Field(json_schema_extra={"enum": [*EnrichmentTrigger]})
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
    sources: tuple[JobSourceShown, ...] = ()


# `field_sources` gives the source of each value, or the user who set it.
class CompanyShown(ContractModel):
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


class DocumentShown(ContractModel):
    id: Id
    doc_type: str
    source_api: SourceApi
    retrieved_at: Instant
    checksum: str


class RetrievalShown(ContractModel):
    source_api: SourceApi
    last_retrieved_at: Instant
    last_status: CallStatus
    last_http_status: int | None
    last_error: str | None


class CompanyRequestShown(ContractModel):
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

    @field_validator("warnings", mode="before")
    @classmethod
    def _from_column(cls, stored: object) -> object:
        """The column holds an object with the list, or null."""
        if isinstance(stored, Mapping):
            return cast("Mapping[str, object]", stored).get("warnings", ())
        return () if stored is None else stored


class RequestShown(ContractModel):
    """A request with its company. `enrichment_running`: a refresh is in progress, so read it again later."""

    model_config = ConfigDict(extra="ignore")

    request: CompanyRequestShown
    company: CompanyShown | None
    documents: tuple[DocumentShown, ...]
    source_retrievals: tuple[RetrievalShown, ...]
    enrichment_running: bool
    job_id: Id | None


@dataclass(frozen=True)
class SourceStatus:
    """The state of a source, which all processes share. No process calls it before `open_until`.
    `quota_used` counts the calls of the day `quota_on`."""

    source: SourceApi
    open_until: datetime | None = None
    open_reason: str | None = None
    failures: int = 0
    quota_on: date | None = None
    quota_used: int = 0

    def is_resting(self, now: datetime) -> bool:
        return self.rest_seconds(now) > 0

    def rest_seconds(self, now: datetime) -> float:
        return 0.0 if self.open_until is None else max((self.open_until - now).total_seconds(), 0.0)

    def used_on(self, day: date) -> int:
        return self.quota_used if self.quota_on == day else 0


NOT_CONFIGURED = "RECHERCHE_ENTREPRISES_BASE_URL is not set: every enrichment needs this register."


def is_configured(sources: Container[SourceApi]) -> bool:
    return all(source in sources for source in REQUIRED_SOURCES)


def check_configured(sources: Container[SourceApi]) -> None:
    """Raises PermanentError: an enrichment without its required source always fails."""
    if not is_configured(sources):
        raise PermanentError(NOT_CONFIGURED)


@dataclass(frozen=True, kw_only=True)
class EnrichmentOptions:
    """`optional_not_found_counts`: an optional register that does not know the company counts as a
    failed source."""

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


class Registry(Protocol):
    """A source. `fetch` makes one call, after a login if necessary. The caller applies the rate
    limit, the quota and the circuit breaker, and retries. Errors of the source are returned as
    values, and no text in them contains a secret."""

    async def fetch(self, siren: str, siret: str | None) -> SourceRecord | SourceError: ...

    async def check(self) -> None:
        """Raises an error that says what is wrong if the source does not answer."""
        ...


class SharedTokens(Protocol):
    """The token of the last login at a source, which all processes share. No log line, error or event
    contains it."""

    def current(self) -> str | None:
        """Return the token, or None if there is no valid one."""
        ...

    def store(self, token: str, until: datetime) -> None: ...

    def discard(self, token: str) -> None:
        """Discard a token that the source refused. A newer token of another process stays."""
        ...


@dataclass(frozen=True)
class SharedLogin:
    """The shared token of a login, and the claims that allow one process at a time to log in."""

    tokens: SharedTokens
    claims: Claims


@dataclass(frozen=True)
class RegistrySource:
    """A configured source. All processes together use its rate and its daily quota."""

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


CALLS = "enrichment_source_calls_total"
ENDED_JOBS = "enrichment_jobs_total"
DURATION_MS = "enrichment_duration_ms"
LATENCY_MS = "enrichment_source_latency_ms"
RATE_LIMITED = "enrichment_rate_limited_total"
REQUESTS = "enrichment_asked_total"
LOST_LEASES = "enrichment_lost_leases_total"


def claim_key(siren: str) -> str:
    return f"company_enrichment:{siren}"
