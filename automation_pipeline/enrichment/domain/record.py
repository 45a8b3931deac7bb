"""What a source says of a company, in our words, and how a call of it ended."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import date, datetime

from automation_pipeline.enrichment.domain.vocabulary import CallStatus, ErrorCode, SourceApi


@dataclass(frozen=True, kw_only=True)
class CompanyFields:
    """Normalised: NAF with its dot, two letters for the country, codes, no labels. None: not said, or masked."""

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
    """`document` is what the source answered, without what changes by itself. `is_masked`: it may not tell all.
    `warnings` are sentences about the establishment that was asked for."""

    siren: str
    said: CompanyFields
    document: Mapping[str, object]
    is_masked: bool = False
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SourceError:
    """One call that failed. `retry_after_seconds` is what the source asked for. `is_ours`: we did not make the call,
    which says nothing of the source. `not_before`: the source asks every caller to wait until then."""

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
