"""Requests, companies, jobs and sources as people see them."""

from datetime import date
from typing import Any

from automation_pipeline.core.json_model import Id, Instant, JsonModel
from automation_pipeline.enrichment.domain.states import EnrichmentStatus
from automation_pipeline.enrichment.domain.vocabulary import CallStatus, JobState, SourceApi, Trigger


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
    """`status` is there once it is done. `not_before`: a required source asks to wait until then."""

    id: Id
    company_siren: str
    trigger: Trigger
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
    """`field_sources` says where each value comes from. `is_masked`: the register may not tell all."""

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
