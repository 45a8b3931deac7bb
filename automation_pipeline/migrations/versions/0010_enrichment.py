"""Enrichment: companies and where their fields come from, requests, jobs with their sources, how sources stand."""

import sqlalchemy as sa
from alembic import op

from automation_pipeline.storage.types import BigId, Json, UtcDateTime

revision = "0010_enrichment"
down_revision = "0009_org_jobs"


def upgrade() -> None:
    op.create_table(
        "companies",
        sa.Column("siren", sa.String(), nullable=False),
        sa.Column("siret", sa.String(), nullable=True),
        sa.Column("legal_name", sa.String(), nullable=False),
        sa.Column("trade_name", sa.String(), nullable=True),
        sa.Column("brand_name", sa.String(), nullable=True),
        sa.Column("legal_form", sa.String(), nullable=True),
        sa.Column("creation_date", sa.Date(), nullable=True),
        sa.Column("active_status", sa.String(), nullable=True),
        sa.Column("address_line1", sa.String(), nullable=True),
        sa.Column("address_line2", sa.String(), nullable=True),
        sa.Column("postal_code", sa.String(), nullable=True),
        sa.Column("city", sa.String(), nullable=True),
        sa.Column("country_code", sa.String(), nullable=True),
        sa.Column("naf_code", sa.String(), nullable=True),
        sa.Column("naf_label", sa.String(), nullable=True),
        sa.Column("headcount_range", sa.String(), nullable=True),
        sa.Column("rcs_city", sa.String(), nullable=True),
        sa.Column("registry_name", sa.String(), nullable=True),
        sa.Column("is_masked", sa.Boolean(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.CheckConstraint("length(siren) = 9", name=op.f("ck_companies_siren")),
        sa.PrimaryKeyConstraint("siren", name=op.f("pk_companies")),
    )
    op.create_index("ix_companies_updated_at", "companies", ["updated_at"])

    op.create_table(
        "company_documents",
        sa.Column("id", BigId, nullable=False),
        sa.Column("company_siren", sa.String(), nullable=False),
        sa.Column("doc_type", sa.String(), nullable=False),
        sa.Column("source_api", sa.String(), nullable=False),
        sa.Column("retrieved_at", UtcDateTime(), nullable=False),
        sa.Column("payload_json", Json, nullable=False),
        sa.Column("checksum", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_company_documents")),
        sa.UniqueConstraint(
            "company_siren", "doc_type", "checksum", name=op.f("uq_company_documents_company_siren_doc_type_checksum")
        ),
    )
    op.create_table(
        "company_enrichments",
        sa.Column("siren", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("running_job_id", sa.BigInteger(), nullable=True),
        sa.Column("enrichment_error", sa.String(), nullable=True),
        sa.Column("last_run_at", UtcDateTime(), nullable=True),
        sa.Column("due_at", UtcDateTime(), nullable=True),
        sa.Column("retries", sa.Integer(), nullable=False),
        sa.Column("last_manual_at", UtcDateTime(), nullable=True),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.CheckConstraint(
            "(status = 'RUNNING') = (running_job_id IS NOT NULL)", name=op.f("ck_company_enrichments_running_job")
        ),
        sa.CheckConstraint(
            "status <> 'FAILED' OR enrichment_error <> ''", name=op.f("ck_company_enrichments_failed_says_why")
        ),
        sa.CheckConstraint(
            "status IN ('PENDING', 'RUNNING', 'SUCCESS', 'PARTIAL', 'FAILED', 'STALE')",
            name=op.f("ck_company_enrichments_status"),
        ),
        sa.PrimaryKeyConstraint("siren", name=op.f("pk_company_enrichments")),
    )
    op.create_index("ix_company_enrichments_status_due_at", "company_enrichments", ["status", "due_at"])

    op.create_table(
        "company_field_sources",
        sa.Column("id", BigId, nullable=False),
        sa.Column("company_siren", sa.String(), nullable=False),
        sa.Column("field", sa.String(), nullable=False),
        sa.Column("source_api", sa.String(), nullable=True),
        sa.Column("fetched_at", UtcDateTime(), nullable=False),
        sa.Column("value_hash", sa.String(), nullable=False),
        sa.Column("locked_by_user", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_company_field_sources")),
        sa.UniqueConstraint("company_siren", "field", name=op.f("uq_company_field_sources_company_siren_field")),
    )
    op.create_table(
        "company_requests",
        sa.Column("id", BigId, nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("idempotency_key", sa.String(), nullable=True),
        sa.Column("siren", sa.String(), nullable=False),
        sa.Column("siret", sa.String(), nullable=True),
        sa.Column("siren_raw", sa.String(), nullable=True),
        sa.Column("siret_raw", sa.String(), nullable=True),
        sa.Column("company_siren", sa.String(), nullable=False),
        sa.Column("warnings", Json, nullable=True),
        sa.Column("enrichment_status", sa.String(), nullable=False),
        sa.Column("enrichment_last_run_at", UtcDateTime(), nullable=True),
        sa.Column("enrichment_error", sa.String(), nullable=True),
        sa.Column("correlation_id", sa.String(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.CheckConstraint(
            "enrichment_status IN ('PENDING', 'RUNNING', 'SUCCESS', 'PARTIAL', 'FAILED', 'STALE')",
            name=op.f("ck_company_requests_enrichment_status"),
        ),
        sa.CheckConstraint(
            "siret IS NULL OR substr(siret, 1, 9) = company_siren", name=op.f("ck_company_requests_siret")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_company_requests")),
        sa.UniqueConstraint("tenant_id", "idempotency_key", name=op.f("uq_company_requests_tenant_id_idempotency_key")),
    )
    op.create_index("ix_company_requests_company_siren", "company_requests", ["company_siren"])
    op.create_index("ix_company_requests_tenant_id_created_at", "company_requests", ["tenant_id", "created_at"])

    op.create_table(
        "company_source_retrievals",
        sa.Column("id", BigId, nullable=False),
        sa.Column("company_siren", sa.String(), nullable=False),
        sa.Column("source_api", sa.String(), nullable=False),
        sa.Column("last_retrieved_at", UtcDateTime(), nullable=False),
        sa.Column("last_status", sa.String(), nullable=False),
        sa.Column("last_http_status", sa.Integer(), nullable=True),
        sa.Column("last_error", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_company_source_retrievals")),
        sa.UniqueConstraint(
            "company_siren", "source_api", name=op.f("uq_company_source_retrievals_company_siren_source_api")
        ),
    )
    op.create_table(
        "enrichment_jobs",
        sa.Column("id", BigId, nullable=False),
        sa.Column("company_siren", sa.String(), nullable=False),
        sa.Column("company_siret", sa.String(), nullable=True),
        sa.Column("trigger", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("requested_by_tenant", sa.String(), nullable=False),
        sa.Column("correlation_id", sa.String(), nullable=False),
        sa.Column("lock_token", sa.BigInteger(), nullable=False),
        sa.Column("lock_owner", sa.String(), nullable=True),
        sa.Column("heartbeat_at", UtcDateTime(), nullable=True),
        sa.Column("requests", sa.Integer(), nullable=False),
        sa.Column("requested_at", UtcDateTime(), nullable=True),
        sa.Column("started_at", UtcDateTime(), nullable=True),
        sa.Column("finished_at", UtcDateTime(), nullable=True),
        sa.Column("sources_success_count", sa.Integer(), nullable=False),
        sa.Column("required_failed_count", sa.Integer(), nullable=False),
        sa.Column("optional_failed_count", sa.Integer(), nullable=False),
        sa.Column("core_identity_present", sa.Boolean(), nullable=True),
        sa.Column("enrichment_error", sa.String(), nullable=True),
        sa.Column("changes", Json, nullable=True),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.CheckConstraint("(state = 'DONE') = (finished_at IS NOT NULL)", name=op.f("ck_enrichment_jobs_finished")),
        sa.CheckConstraint("state IN ('PENDING', 'RUNNING', 'DONE')", name=op.f("ck_enrichment_jobs_state")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_enrichment_jobs")),
    )
    op.create_index(
        "ix_enrichment_jobs_at_work",
        "enrichment_jobs",
        ["id"],
        postgresql_where=sa.text("state IN ('PENDING', 'RUNNING')"),
        sqlite_where=sa.text("state IN ('PENDING', 'RUNNING')"),
    )
    op.create_index("ix_enrichment_jobs_company_siren_id", "enrichment_jobs", ["company_siren", "id"])
    op.create_index("ix_enrichment_jobs_finished_at", "enrichment_jobs", ["finished_at"])
    op.create_index(
        "uq_enrichment_jobs_open",
        "enrichment_jobs",
        ["company_siren"],
        unique=True,
        postgresql_where=sa.text("state IN ('PENDING', 'RUNNING')"),
        sqlite_where=sa.text("state IN ('PENDING', 'RUNNING')"),
    )

    op.create_table(
        "enrichment_sources",
        sa.Column("source_api", sa.String(), nullable=False),
        sa.Column("open_until", UtcDateTime(), nullable=True),
        sa.Column("open_reason", sa.String(), nullable=True),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("is_silent", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("quota_on", sa.Date(), nullable=True),
        sa.Column("quota_used", sa.Integer(), nullable=False),
        sa.Column("token", sa.String(), nullable=True),
        sa.Column("token_until", UtcDateTime(), nullable=True),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("source_api", name=op.f("pk_enrichment_sources")),
    )
    op.create_table(
        "enrichment_job_attachments",
        sa.Column("id", BigId, nullable=False),
        sa.Column("job_id", BigId, nullable=False),
        sa.Column("request_id", BigId, nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("correlation_id", sa.String(), nullable=False),
        sa.Column("attached_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["enrichment_jobs.id"], name=op.f("fk_enrichment_job_attachments_job_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["request_id"],
            ["company_requests.id"],
            name=op.f("fk_enrichment_job_attachments_request_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_enrichment_job_attachments")),
        sa.UniqueConstraint("job_id", "request_id", name=op.f("uq_enrichment_job_attachments_job_id_request_id")),
    )
    op.create_index("ix_enrichment_job_attachments_request_id", "enrichment_job_attachments", ["request_id"])

    op.create_table(
        "enrichment_job_sources",
        sa.Column("id", BigId, nullable=False),
        sa.Column("job_id", BigId, nullable=False),
        sa.Column("source_api", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("http_status", sa.Integer(), nullable=True),
        sa.Column("error_code", sa.String(), nullable=True),
        sa.Column("error_message", sa.String(), nullable=True),
        sa.Column("is_retryable", sa.Boolean(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("duration_ms", sa.Integer(), nullable=False),
        sa.Column("said", Json, nullable=True),
        sa.Column("document", Json, nullable=True),
        sa.Column("is_masked", sa.Boolean(), nullable=False),
        sa.Column("fetched_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["enrichment_jobs.id"], name=op.f("fk_enrichment_job_sources_job_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_enrichment_job_sources")),
        sa.UniqueConstraint("job_id", "source_api", name=op.f("uq_enrichment_job_sources_job_id_source_api")),
    )
