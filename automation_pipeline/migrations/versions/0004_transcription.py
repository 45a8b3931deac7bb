"""Transcription."""

import sqlalchemy as sa
from alembic import op

from automation_pipeline.storage.types import BigId, Json, TextList, UtcDateTime

revision = "0004_transcription"
down_revision = "0003_fiches"


def upgrade() -> None:
    op.create_table(
        "transcription_runs",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("fiche_id", sa.String(), nullable=False),
        sa.Column("priority", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("dagster_run_id", sa.String(), nullable=True),
        sa.Column("total_recordings", sa.Integer(), nullable=False),
        sa.Column("already_transcribed", sa.Integer(), nullable=False),
        sa.Column("target_total", sa.Integer(), nullable=False),
        sa.Column("processed", sa.Integer(), nullable=False),
        sa.Column("cached", sa.Integer(), nullable=False),
        sa.Column("failed", sa.Integer(), nullable=False),
        sa.Column("error", sa.String(), nullable=True),
        sa.Column("started_at", UtcDateTime(), nullable=False),
        sa.Column("touched_at", UtcDateTime(), nullable=False),
        sa.Column("finished_at", UtcDateTime(), nullable=True),
        sa.CheckConstraint("status IN ('running', 'completed', 'failed')", name=op.f("ck_transcription_runs_status")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_transcription_runs")),
    )
    op.create_index("ix_transcription_runs_fiche_id_started_at", "transcription_runs", ["fiche_id", "started_at"])
    op.create_index("ix_transcription_runs_touched_at", "transcription_runs", ["touched_at"])
    op.create_index(
        "uq_transcription_runs_live_fiche",
        "transcription_runs",
        ["fiche_id"],
        unique=True,
        postgresql_where=sa.text("status = 'running'"),
        sqlite_where=sa.text("status = 'running'"),
    )

    op.create_table(
        "workflow_logs",
        sa.Column("id", BigId, nullable=False),
        sa.Column("workflow", sa.String(), nullable=False),
        sa.Column("level", sa.String(), nullable=False),
        sa.Column("entity_type", sa.String(), nullable=False),
        sa.Column("entity_id", sa.String(), nullable=False),
        sa.Column("trace_id", sa.String(), nullable=False),
        sa.Column("dagster_run_id", sa.String(), nullable=True),
        sa.Column("step_name", sa.String(), nullable=True),
        sa.Column("message", sa.String(), nullable=False),
        sa.Column("data", Json, nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workflow_logs")),
    )
    op.create_index("ix_workflow_logs_entity_type_entity_id", "workflow_logs", ["entity_type", "entity_id"])
    op.create_index("ix_workflow_logs_trace_id", "workflow_logs", ["trace_id"])
    op.create_index("ix_workflow_logs_workflow_created_at", "workflow_logs", ["workflow", "created_at"])

    op.create_table(
        "recording_transcription_chunks",
        sa.Column("id", BigId, nullable=False),
        sa.Column("recording_id", BigId, nullable=False),
        sa.Column("chunk_index", sa.Integer(), nullable=False),
        sa.Column("start_timestamp", sa.Float(), nullable=False),
        sa.Column("end_timestamp", sa.Float(), nullable=False),
        sa.Column("message_count", sa.Integer(), nullable=False),
        sa.Column("speakers", TextList, nullable=False),
        sa.Column("full_text", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["recording_id"],
            ["recordings.id"],
            name=op.f("fk_recording_transcription_chunks_recording_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_recording_transcription_chunks")),
        sa.UniqueConstraint(
            "recording_id", "chunk_index", name=op.f("uq_recording_transcription_chunks_recording_id_chunk_index")
        ),
    )
    op.create_table(
        "transcription_tasks",
        sa.Column("id", BigId, nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("recording_id", BigId, nullable=False),
        sa.Column("fiche_id", sa.String(), nullable=False),
        sa.Column("call_id", sa.String(), nullable=False),
        sa.Column("recording_index", sa.Integer(), nullable=False),
        sa.Column("urgency", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("audio_failures", sa.Integer(), nullable=False),
        sa.Column("available_at", UtcDateTime(), nullable=False),
        sa.Column("owner", sa.String(), nullable=True),
        sa.Column("token", sa.BigInteger(), nullable=False),
        sa.Column("leased_until", UtcDateTime(), nullable=True),
        sa.Column("error", sa.String(), nullable=True),
        sa.Column("finished_at", UtcDateTime(), nullable=True),
        sa.CheckConstraint(
            "state IN ('waiting', 'working', 'done', 'cached', 'failed')", name=op.f("ck_transcription_tasks_state")
        ),
        sa.ForeignKeyConstraint(
            ["recording_id"], ["recordings.id"], name=op.f("fk_transcription_tasks_recording_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["run_id"], ["transcription_runs.id"], name=op.f("fk_transcription_tasks_run_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_transcription_tasks")),
        sa.UniqueConstraint("run_id", "call_id", name=op.f("uq_transcription_tasks_run_id_call_id")),
    )
    op.create_index(
        "ix_transcription_tasks_live",
        "transcription_tasks",
        ["urgency", "id"],
        postgresql_where=sa.text("state IN ('waiting', 'working')"),
        sqlite_where=sa.text("state IN ('waiting', 'working')"),
    )
    op.create_index(
        "ix_transcription_tasks_working",
        "transcription_tasks",
        ["fiche_id"],
        postgresql_where=sa.text("state = 'working'"),
        sqlite_where=sa.text("state = 'working'"),
    )
    op.create_index(
        "uq_transcription_tasks_live_recording",
        "transcription_tasks",
        ["recording_id"],
        unique=True,
        postgresql_where=sa.text("state IN ('waiting', 'working')"),
        sqlite_where=sa.text("state IN ('waiting', 'working')"),
    )

    with op.batch_alter_table("recordings") as batch_op:
        batch_op.add_column(sa.Column("has_transcription", sa.Boolean(), server_default=sa.false(), nullable=False))
        batch_op.add_column(sa.Column("transcription_id", sa.String(), nullable=True))
        batch_op.add_column(sa.Column("transcription_text", sa.String(), nullable=True))
        batch_op.add_column(sa.Column("transcription_language_code", sa.String(), nullable=True))
        batch_op.add_column(sa.Column("transcription_language_probability", sa.Float(), nullable=True))
        batch_op.add_column(sa.Column("transcribed_at", UtcDateTime(), nullable=True))
