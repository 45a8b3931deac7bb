"""The tables of all packages, for Alembic, which compares them with the database."""

from automation_pipeline.access import tables as access
from automation_pipeline.audits import tables as audits
from automation_pipeline.automation import tables as automation
from automation_pipeline.enrichment import tables as enrichment
from automation_pipeline.fiches import tables as fiches
from automation_pipeline.org_jobs import tables as org_jobs
from automation_pipeline.pricing import tables as pricing
from automation_pipeline.storage import claims, idempotency, outbox, rate_limits, run_requests
from automation_pipeline.storage import history as transitions
from automation_pipeline.storage import history as workflow_logs
from automation_pipeline.storage import monitoring as measures
from automation_pipeline.storage import monitoring as pulses
from automation_pipeline.storage import monitoring as step_beats
from automation_pipeline.storage.types import Table
from automation_pipeline.transcription import tables as transcription

TABLE_MODULES = (
    access,
    audits,
    automation,
    claims,
    enrichment,
    fiches,
    idempotency,
    measures,
    org_jobs,
    outbox,
    pricing,
    pulses,
    rate_limits,
    run_requests,
    step_beats,
    transcription,
    transitions,
    workflow_logs,
)
METADATA = Table.metadata
