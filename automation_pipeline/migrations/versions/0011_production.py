"""The production profile: signs of life of steps on other hosts than their run, and what waits among a million."""

import sqlalchemy as sa
from alembic import op

from automation_pipeline.storage.types import UtcDateTime

revision = "0011_production"
down_revision = "0010_enrichment"


def upgrade() -> None:
    op.create_table(
        "step_beats",
        sa.Column("dagster_run_id", sa.String(), nullable=False),
        sa.Column("step_key", sa.String(), nullable=False),
        sa.Column("worker", sa.String(), nullable=False),
        sa.Column("begun", sa.Integer(), nullable=False),
        sa.Column("beat_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("dagster_run_id", "step_key", name=op.f("pk_step_beats")),
    )
    op.create_index(
        "ix_recordings_untranscribed",
        "recordings",
        ["fiche_cache_id"],
        postgresql_where=sa.text("has_transcription IS false AND vanished_at IS NULL"),
        sqlite_where=sa.text("has_transcription IS 0 AND vanished_at IS NULL"),
    )
