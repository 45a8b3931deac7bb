"""The edges: tokens, answers kept by key, counts, signs of life, jobs over days, phases, streams of events."""

import sqlalchemy as sa
from alembic import op

from automation_pipeline.storage.types import BigId, Json, TextList, UtcDateTime

revision = "0007_edges"
down_revision = "0006_automation_whole"


def upgrade() -> None:
    op.create_table(
        "api_tokens",
        sa.Column("id", BigId, nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("token_hash", sa.String(), nullable=False),
        sa.Column("prefix", sa.String(), nullable=False),
        sa.Column("permissions", TextList, nullable=False),
        sa.Column("scope", sa.String(), nullable=False),
        sa.Column("groupes", TextList, nullable=False),
        sa.Column("crm_user_id", sa.String(), nullable=True),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("expires_at", UtcDateTime(), nullable=True),
        sa.Column("last_used_at", UtcDateTime(), nullable=True),
        sa.Column("revoked_at", UtcDateTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_tokens")),
        sa.UniqueConstraint("token_hash", name=op.f("uq_api_tokens_token_hash")),
    )
    op.create_table(
        "idempotency_keys",
        sa.Column("id", BigId, nullable=False),
        sa.Column("caller", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("fingerprint", sa.String(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("answer", sa.String(), nullable=True),
        sa.Column("etag", sa.String(), nullable=True),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_idempotency_keys")),
        sa.UniqueConstraint("caller", "key", name=op.f("uq_idempotency_keys_caller_key")),
    )
    op.create_index("ix_idempotency_keys_created_at", "idempotency_keys", ["created_at"])

    op.create_table(
        "measures",
        sa.Column("id", BigId, nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("labels", sa.String(), nullable=False),
        sa.Column("value", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_measures")),
        sa.UniqueConstraint("name", "labels", name=op.f("uq_measures_name_labels")),
    )
    op.create_table(
        "progressive_fetch_jobs",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("start_date", sa.Date(), nullable=False),
        sa.Column("end_date", sa.Date(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("total_days", sa.Integer(), nullable=False),
        sa.Column("dates_already_fetched", TextList, nullable=False),
        sa.Column("dates_remaining", TextList, nullable=False),
        sa.Column("dates_failed", TextList, nullable=False),
        sa.Column("total_fiches", sa.Integer(), nullable=True),
        sa.Column("webhook_url", sa.String(), nullable=True),
        sa.Column("webhook_secret", sa.String(), nullable=True),
        sa.Column("error", sa.String(), nullable=True),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.Column("completed_at", UtcDateTime(), nullable=True),
        sa.CheckConstraint(
            "status IN ('pending', 'processing', 'complete', 'failed')", name=op.f("ck_progressive_fetch_jobs_status")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_progressive_fetch_jobs")),
    )
    op.create_index("ix_progressive_fetch_jobs_completed_at", "progressive_fetch_jobs", ["completed_at"])
    op.create_index("ix_progressive_fetch_jobs_created_at", "progressive_fetch_jobs", ["created_at"])
    op.create_index(
        "ix_progressive_fetch_jobs_start_date_end_date", "progressive_fetch_jobs", ["start_date", "end_date"]
    )
    op.create_index("ix_progressive_fetch_jobs_status", "progressive_fetch_jobs", ["status"])

    op.create_table(
        "pulses",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("beat_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_pulses")),
    )
    op.create_table(
        "webhook_deliveries",
        sa.Column("id", BigId, nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("event", sa.String(), nullable=False),
        sa.Column("url", sa.String(), nullable=False),
        sa.Column("payload", Json, nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("status_code", sa.Integer(), nullable=True),
        sa.Column("response_body", sa.String(), nullable=True),
        sa.Column("last_error", sa.String(), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("next_retry_at", UtcDateTime(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("sent_at", UtcDateTime(), nullable=True),
        sa.CheckConstraint("event IN ('progress', 'complete', 'failed')", name=op.f("ck_webhook_deliveries_event")),
        sa.CheckConstraint("status IN ('pending', 'sent', 'failed')", name=op.f("ck_webhook_deliveries_status")),
        sa.ForeignKeyConstraint(
            ["job_id"], ["progressive_fetch_jobs.id"], name=op.f("fk_webhook_deliveries_job_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhook_deliveries")),
    )
    op.create_index("ix_webhook_deliveries_job_id", "webhook_deliveries", ["job_id"])
    op.create_index("ix_webhook_deliveries_status_next_retry_at", "webhook_deliveries", ["status", "next_retry_at"])

    op.create_table(
        "automation_run_phases",
        sa.Column("run_id", BigId, autoincrement=False, nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("phase", sa.String(), nullable=False),
        sa.Column("entered_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["automation_runs.id"], name=op.f("fk_automation_run_phases_run_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", "attempt", "phase", name=op.f("pk_automation_run_phases")),
    )
    op.add_column("events_outbox", sa.Column("fiche_id", sa.String(), nullable=True))
    op.add_column("events_outbox", sa.Column("transaction_id", sa.BigInteger(), nullable=True))
    op.create_index(
        "ix_events_outbox_correlation_id_transaction_id_id",
        "events_outbox",
        ["correlation_id", "transaction_id", "id"],
    )
    op.create_index(
        "ix_events_outbox_fiche_id_transaction_id_id", "events_outbox", ["fiche_id", "transaction_id", "id"]
    )
    for name, column, condition in (
        ("ix_events_outbox_unpublished", "id", "published_at IS NULL"),
        ("ix_events_outbox_claimed", "claimed_until", "claimed_until IS NOT NULL"),
    ):
        op.create_index(
            name, "events_outbox", [column], postgresql_where=sa.text(condition), sqlite_where=sa.text(condition)
        )
    # What was written before has been written for long: those who follow events see it.
    op.execute("UPDATE events_outbox SET transaction_id = 0")
