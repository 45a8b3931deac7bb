"""Deletion of old rows and of Dagster's old runs."""

import asyncio
from collections.abc import Mapping
from datetime import datetime, timedelta

from dagster import DagsterInstance, MetadataValue, RunsFilter

from automation_pipeline.bootstrap import Services
from automation_pipeline.orchestration import metadata
from automation_pipeline.orchestration.recovery import ENDED
from automation_pipeline.retention import purge_all

RUNS_PER_PAGE = 100
# The next night deletes the rest.
MAX_RUNS = 10_000
PAUSE_SECONDS = 0.05


async def delete_old_runs(
    instance: DagsterInstance, before: datetime, *, is_dry: bool = False, limit: int = MAX_RUNS
) -> int:
    """Delete the oldest Dagster runs that ended before this instant, and return their number; a
    dry run only counts. Step logs and events, including materialisations, are deleted with their
    run."""
    old = RunsFilter(statuses=list(ENDED), updated_before=before)
    if is_dry:
        return instance.get_runs_count(old)
    deleted = 0
    while deleted < limit:
        page = instance.get_runs(old, limit=min(RUNS_PER_PAGE, limit - deleted), ascending=True)
        if not page:
            break
        for run in page:
            instance.compute_log_manager.delete_logs(prefix=[run.run_id, "compute_logs"])
            instance.delete_run(run.run_id)
        deleted += len(page)
        await asyncio.sleep(PAUSE_SECONDS)
    return deleted


async def delete_old_rows(
    instance: DagsterInstance, services: Services, *, is_dry: bool = False
) -> Mapping[str, int]:
    """The number of rows deleted per kind; a dry run only counts."""
    keep_days, deleted = services.settings.dagster_runs_keep_days, 0
    own = await purge_all(services, is_dry=is_dry)
    if keep_days:
        before = services.clock.now() - timedelta(days=keep_days)
        deleted = await delete_old_runs(instance, before, is_dry=is_dry)
    return {**own, "dagster runs": deleted}


def housekeeping_page(deleted: Mapping[str, int]) -> dict[str, MetadataValue]:
    """The total and its parts as metadata."""
    rows = "".join(f"| {name} | {count:,} |\n" for name, count in deleted.items())
    table = metadata.markdown(f"| What | Rows |\n|---|---:|\n{rows}")
    return {"rows": metadata.integer(sum(deleted.values())), "kinds": table}
