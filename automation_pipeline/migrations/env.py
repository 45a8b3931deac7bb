"""Alembic's entry point: applies the revisions on the connection that `migrations.upgrade` opened."""

from alembic import context

from automation_pipeline.migrations.tables import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    render_as_batch=True,
    transaction_per_migration=False,
)
with context.begin_transaction():
    context.run_migrations()
