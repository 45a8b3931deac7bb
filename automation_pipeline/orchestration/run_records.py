"""Dagster's records of runs that ended long ago: they go with what else is stored of the runs, but for what was
materialised, observed and checked. A key that is gone with its record is offered to Dagster no more: it was taken."""

import asyncio
import shutil
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from dagster import DagsterInstance, RunsFilter
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage
from dagster._core.storage.runs.schema import RunsTable, RunTagsTable
from dagster._core.storage.runs.sql_run_storage import SqlRunStorage

from automation_pipeline.orchestration.event_files import remove_file
from automation_pipeline.orchestration.event_log import ENDED, PAUSE_SECONDS, RUNS_AT_ONCE


async def forget_runs(instance: DagsterInstance, before: datetime, *, is_dry: bool = False) -> int:
    """How many runs that ended before went, or would. Their events are to go first."""
    storage, chosen = instance.run_storage, RunsFilter(statuses=list(ENDED), updated_before=before)
    if not isinstance(storage, SqlRunStorage):
        return 0
    if is_dry:
        return storage.get_runs_count(chosen)
    gone = 0
    while run_ids := storage.get_run_ids(chosen, limit=RUNS_AT_ONCE):
        _forget_files(instance, run_ids)
        _forget_records(storage, run_ids)
        gone += len(run_ids)
        await asyncio.sleep(PAUSE_SECONDS)
    return gone


def _forget_files(instance: DagsterInstance, run_ids: Sequence[str]) -> None:
    events = instance.event_log_storage
    for run_id in run_ids:
        instance.compute_log_manager.delete_logs(prefix=[run_id, "compute_logs"])
        shutil.rmtree(Path(instance.storage_directory()) / run_id, ignore_errors=True)
        if isinstance(events, SqliteEventLogStorage):
            remove_file(events.path_for_shard(run_id))


def _forget_records(storage: SqlRunStorage, run_ids: Sequence[str]) -> None:
    with storage.connect() as connection:  # SQLite's does not let tags go with their run
        connection.execute(RunTagsTable.delete().where(RunTagsTable.c.run_id.in_(run_ids)))
        connection.execute(RunsTable.delete().where(RunsTable.c.run_id.in_(run_ids)))
