"""Every room's tables, gathered so that Alembic can compare them with the database."""

from automation_pipeline.automation import tables as automation
from automation_pipeline.fiches import tables as fiches
from automation_pipeline.storage import leases, outbox, rate_limits, run_requests, transitions
from automation_pipeline.storage.metadata import Table

TABLE_MODULES = (automation, fiches, leases, outbox, rate_limits, run_requests, transitions)
METADATA = Table.metadata
