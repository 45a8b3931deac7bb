"""Tables of enrichment: companies and the sources of their fields, requests, jobs, and the states of the
sources."""

from collections.abc import Sequence
from datetime import date, datetime

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Date,
    ForeignKey,
    Index,
    UniqueConstraint,
    false,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from automation_pipeline.storage.types import BigId, Json, JsonObject, Table, UtcDateTime

_STATUS = "('PENDING', 'RUNNING', 'SUCCESS', 'PARTIAL', 'FAILED', 'STALE')"
_OPEN = text("state IN ('PENDING', 'RUNNING')")


class CompanyRow(Table):
    """The last good snapshot of a company. The row exists from the first SUCCESS or PARTIAL on."""

    __tablename__ = "companies"
    __table_args__ = (CheckConstraint("length(siren) = 9", name="siren"), Index(None, "updated_at"))

    siren: Mapped[str] = mapped_column(primary_key=True)
    siret: Mapped[str | None]
    legal_name: Mapped[str]
    trade_name: Mapped[str | None]
    brand_name: Mapped[str | None]
    legal_form: Mapped[str | None]
    creation_date: Mapped[date | None] = mapped_column(Date)
    active_status: Mapped[str | None]
    address_line1: Mapped[str | None]
    address_line2: Mapped[str | None]
    postal_code: Mapped[str | None]
    city: Mapped[str | None]
    country_code: Mapped[str | None]
    naf_code: Mapped[str | None]
    naf_label: Mapped[str | None]
    headcount_range: Mapped[str | None]
    rcs_city: Mapped[str | None]
    registry_name: Mapped[str | None]
    is_masked: Mapped[bool] = mapped_column(default=False)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)


class EnrichmentRow(Table):
    """The enrichment of a SIREN. The sweep refreshes the company at `due_at`."""

    __tablename__ = "company_enrichments"
    __table_args__ = (
        CheckConstraint(f"status IN {_STATUS}", name="status"),
        CheckConstraint("status <> 'FAILED' OR enrichment_error <> ''", name="failed_says_why"),
        CheckConstraint("(status = 'RUNNING') = (running_job_id IS NOT NULL)", name="running_job"),
        Index(None, "status", "due_at"),
    )

    siren: Mapped[str] = mapped_column(primary_key=True)
    status: Mapped[str]
    running_job_id: Mapped[int | None] = mapped_column(BigInteger)
    enrichment_error: Mapped[str | None]
    last_run_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    due_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    # Consecutive refreshes that ended PARTIAL or FAILED for transient reasons.
    retries: Mapped[int] = mapped_column(default=0)
    last_manual_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)


class CompanyRequestRow(Table):
    """A request for a company. Its status follows that of the SIREN."""

    __tablename__ = "company_requests"
    __table_args__ = (
        CheckConstraint(f"enrichment_status IN {_STATUS}", name="enrichment_status"),
        CheckConstraint("siret IS NULL OR substr(siret, 1, 9) = company_siren", name="siret"),
        UniqueConstraint("tenant_id", "idempotency_key"),
        Index(None, "company_siren"),
        Index(None, "tenant_id", "created_at"),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    tenant_id: Mapped[str]
    idempotency_key: Mapped[str | None]
    siren: Mapped[str]
    siret: Mapped[str | None]
    siren_raw: Mapped[str | None]
    siret_raw: Mapped[str | None]
    company_siren: Mapped[str]
    warnings: Mapped[JsonObject | None] = mapped_column(Json)
    enrichment_status: Mapped[str] = mapped_column(default="PENDING")
    enrichment_last_run_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    enrichment_error: Mapped[str | None]
    correlation_id: Mapped[str]
    created_by: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)


class EnrichmentJobRow(Table):
    """One refresh of a SIREN, which has at most one open job. `lock_token` is the token of the claim under
    which the job was last started: a worker with a lower token writes nothing."""

    __tablename__ = "enrichment_jobs"
    __table_args__ = (
        CheckConstraint("state IN ('PENDING', 'RUNNING', 'DONE')", name="state"),
        CheckConstraint("(state = 'DONE') = (finished_at IS NOT NULL)", name="finished"),
        Index(
            "uq_enrichment_jobs_open",
            "company_siren",
            unique=True,
            postgresql_where=_OPEN,
            sqlite_where=_OPEN,
        ),
        Index("ix_enrichment_jobs_at_work", "id", postgresql_where=_OPEN, sqlite_where=_OPEN),
        Index(None, "company_siren", "id"),
        Index(None, "finished_at"),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    # {siren}:{trigger}:{date}, followed by :2, :3 ... for later jobs of the day. The keys of the job's run
    # requests begin with it.
    key: Mapped[str] = mapped_column(unique=True)
    request_key: Mapped[str | None]
    company_siren: Mapped[str]
    company_siret: Mapped[str | None]
    trigger: Mapped[str]
    state: Mapped[str]
    # SUCCESS, PARTIAL or FAILED once the job is done.
    status: Mapped[str | None]
    attempt: Mapped[int] = mapped_column(default=0)
    priority: Mapped[int] = mapped_column(default=5)
    requested_by_tenant: Mapped[str]
    correlation_id: Mapped[str]
    lock_token: Mapped[int] = mapped_column(BigInteger, default=0)
    lock_owner: Mapped[str | None]
    heartbeat_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    # `not_before` is set while a required source asks to wait. `put_offs` counts the postponements after a call
    # of this job.
    not_before: Mapped[datetime | None] = mapped_column(UtcDateTime)
    put_offs: Mapped[int] = mapped_column(default=0)
    requests: Mapped[int] = mapped_column(default=0)
    requested_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    started_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    finished_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    sources_success_count: Mapped[int] = mapped_column(default=0)
    required_failed_count: Mapped[int] = mapped_column(default=0)
    optional_failed_count: Mapped[int] = mapped_column(default=0)
    core_identity_present: Mapped[bool | None]
    enrichment_error: Mapped[str | None]
    changes: Mapped[JsonObject | None] = mapped_column(Json)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class EnrichmentJobSourceRow(Table):
    """The result of a source in a job. The next worker of the job does not call this source again."""

    __tablename__ = "enrichment_job_sources"
    __table_args__ = (UniqueConstraint("job_id", "source_api"),)

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    job_id: Mapped[int] = mapped_column(ForeignKey("enrichment_jobs.id", ondelete="CASCADE"))
    source_api: Mapped[str]
    status: Mapped[str]
    http_status: Mapped[int | None]
    error_code: Mapped[str | None]
    error_message: Mapped[str | None]
    is_retryable: Mapped[bool] = mapped_column(default=False)
    attempts: Mapped[int]
    duration_ms: Mapped[int]
    # The normalised fields, and whether some are masked.
    said: Mapped[JsonObject | None] = mapped_column(Json)
    document: Mapped[JsonObject | None] = mapped_column(Json)
    is_masked: Mapped[bool] = mapped_column(default=False)
    warnings: Mapped[Sequence[str]] = mapped_column(Json, default=list)
    fetched_at: Mapped[datetime] = mapped_column(UtcDateTime)


class AttachmentRow(Table):
    """A request that waits for a job."""

    __tablename__ = "enrichment_job_attachments"
    __table_args__ = (UniqueConstraint("job_id", "request_id"), Index(None, "request_id"))

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    job_id: Mapped[int] = mapped_column(ForeignKey("enrichment_jobs.id", ondelete="CASCADE"))
    request_id: Mapped[int] = mapped_column(ForeignKey("company_requests.id", ondelete="CASCADE"))
    tenant_id: Mapped[str]
    correlation_id: Mapped[str]
    attached_at: Mapped[datetime] = mapped_column(UtcDateTime)


class CompanyDocumentRow(Table):
    """One version of a document of a source."""

    __tablename__ = "company_documents"
    __table_args__ = (UniqueConstraint("company_siren", "doc_type", "checksum"),)

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    company_siren: Mapped[str]
    doc_type: Mapped[str]
    source_api: Mapped[str]
    retrieved_at: Mapped[datetime] = mapped_column(UtcDateTime)
    payload_json: Mapped[JsonObject] = mapped_column(Json)
    checksum: Mapped[str]


class RetrievalRow(Table):
    """The last call of a source for a company."""

    __tablename__ = "company_source_retrievals"
    __table_args__ = (UniqueConstraint("company_siren", "source_api"),)

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    company_siren: Mapped[str]
    source_api: Mapped[str]
    last_retrieved_at: Mapped[datetime] = mapped_column(UtcDateTime)
    last_status: Mapped[str]
    last_http_status: Mapped[int | None]
    last_error: Mapped[str | None]


class FieldSourceRow(Table):
    """The source of one field of the snapshot. A field that a user has locked is not overwritten."""

    __tablename__ = "company_field_sources"
    __table_args__ = (UniqueConstraint("company_siren", "field"),)

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    company_siren: Mapped[str]
    field: Mapped[str]
    source_api: Mapped[str | None]
    fetched_at: Mapped[datetime] = mapped_column(UtcDateTime)
    value_hash: Mapped[str]
    locked_by_user: Mapped[str | None]


class SourceStatusRow(Table):
    """The state of a source, which all processes share: the circuit breaker (no calls before `open_until`),
    the calls of the day, and the token of the last login."""

    __tablename__ = "enrichment_sources"

    source_api: Mapped[str] = mapped_column(primary_key=True)
    open_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    open_reason: Mapped[str | None]
    # Consecutive failures of one kind. `is_silent`: the source did not answer; otherwise it answered 5xx.
    failures: Mapped[int] = mapped_column(default=0)
    is_silent: Mapped[bool] = mapped_column(default=False, server_default=false())
    quota_on: Mapped[date | None] = mapped_column(Date)
    quota_used: Mapped[int] = mapped_column(default=0)
    token: Mapped[str | None] = mapped_column(deferred=True)
    token_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)
