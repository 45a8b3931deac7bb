"""The ground."""

import sqlalchemy as sa
from alembic import op

from automation_pipeline.storage.types import BigId, Json, UtcDateTime

revision = "0001_ground"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "events_outbox",
        sa.Column("id", BigId, nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("event_key", sa.String(), nullable=False),
        sa.Column("event_name", sa.String(), nullable=False),
        sa.Column("producer", sa.String(), nullable=False),
        sa.Column("correlation_id", sa.String(), nullable=False),
        sa.Column("occurred_at", UtcDateTime(), nullable=False),
        sa.Column("payload", Json, nullable=False),
        sa.Column("available_at", UtcDateTime(), nullable=False),
        sa.Column("claimed_by", sa.String(), nullable=True),
        sa.Column("claimed_until", UtcDateTime(), nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("last_error", sa.String(), nullable=True),
        sa.Column("published_at", UtcDateTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events_outbox")),
        sa.UniqueConstraint("tenant_id", "event_key", name=op.f("uq_events_outbox_tenant_id_event_key")),
    )
    op.create_index(
        "ix_events_outbox_waiting",
        "events_outbox",
        ["available_at", "id"],
        postgresql_where=sa.text("published_at IS NULL"),
        sqlite_where=sa.text("published_at IS NULL"),
    )

    op.create_table(
        "leases",
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("token", sa.BigInteger(), nullable=False),
        sa.Column("acquired_at", UtcDateTime(), nullable=False),
        sa.Column("expires_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_leases")),
    )
    op.create_index("ix_leases_expires_at", "leases", ["expires_at"])

    op.create_table(
        "rate_limits",
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("paid_until", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_rate_limits")),
    )
    op.create_table(
        "run_requests",
        sa.Column("id", BigId, nullable=False),
        sa.Column("request_key", sa.String(), nullable=False),
        sa.Column("job", sa.String(), nullable=False),
        sa.Column("config", Json, nullable=False),
        sa.Column("tags", Json, nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("offered_at", UtcDateTime(), nullable=True),
        sa.Column("dagster_run_id", sa.String(), nullable=True),
        sa.Column("reason", sa.String(), nullable=True),
        sa.CheckConstraint("state IN ('waiting', 'taken', 'refused')", name=op.f("ck_run_requests_state")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_run_requests")),
        sa.UniqueConstraint("request_key", name=op.f("uq_run_requests_request_key")),
    )
    op.create_index(
        "ix_run_requests_waiting",
        "run_requests",
        ["id"],
        postgresql_where=sa.text("state = 'waiting'"),
        sqlite_where=sa.text("state = 'waiting'"),
    )

    op.create_table(
        "state_transitions",
        sa.Column("id", BigId, nullable=False),
        sa.Column("machine", sa.String(), nullable=False),
        sa.Column("entity_id", sa.String(), nullable=False),
        sa.Column("from_state", sa.String(), nullable=False),
        sa.Column("to_state", sa.String(), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_state_transitions")),
    )
    op.create_index("ix_state_transitions_machine_entity_id", "state_transitions", ["machine", "entity_id"])
