"""Fetch jobs in Dagster."""

from collections.abc import Mapping
from typing import Any, cast

import dagster as dg

from automation_pipeline.bootstrap import Services
from automation_pipeline.fiches.fetch_jobs import fail_range
from automation_pipeline.fiches.models.fetch_jobs import FetchJob
from automation_pipeline.orchestration import metadata

OP = "fetch_days"


def fail_range_of(run: dg.DagsterRun, reason: str, services: Services) -> None:
    """Close the job of a permanently failed Dagster run."""
    config = cast("Mapping[str, Any]", run.run_config)["ops"][OP]["config"]
    fail_range(str(config["job_id"]), reason, database=services.database, clock=services.clock)


def job_metadata(job: FetchJob) -> dict[str, dg.MetadataValue]:
    counts = {
        "days": job.total_days,
        "fetched_days": len(job.fetched),
        "failed_days": len(job.failed),
        **({} if job.total_fiches is None else {"fiches": job.total_fiches}),
    }
    return {
        "job": metadata.text(job.id),
        "status": metadata.text(job.status.value),
        **{name: metadata.integer(count) for name, count in counts.items()},
        **({"error": metadata.text(job.error)} if job.error else {}),
    }
