"""Dagster's event log, which has no retention of its own: what ended runs wrote goes after a while, in SQLite's files
and in PostgreSQL. What was materialised, observed and checked stays, and the records of the runs do for longer."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from functools import partial
from typing import Any

from dagster import DagsterInstance, DagsterRunStatus, RunsFilter
from dagster._core.events import ASSET_CHECK_EVENTS, ASSET_EVENTS
from dagster._core.storage.event_log.schema import SqlEventLogStorageTable as Events
from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage

from automation_pipeline.orchestration.event_files import empty_file, has_old_events

RUNS_AT_ONCE = 100
EVENTS_AT_ONCE = 1000
PAUSE_SECONDS = 0.05
ENDED = (DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED)
KEPT_EVENTS = tuple(sorted(kind.value for kind in ASSET_EVENTS | ASSET_CHECK_EVENTS))

# Any: connections and conditions are SQLAlchemy's, which only Dagster hands out here.
Connect = Callable[[], AbstractContextManager[Any]]


async def forget_events(instance: DagsterInstance, before: datetime, *, is_dry: bool = False) -> int:
    """How many events of runs that ended before went, or would. Their steps' own lines go first: as long as there are
    events, whoever comes after one that was killed finds the run again."""
    storage = instance.event_log_storage
    if not isinstance(storage, SqlEventLogStorage):
        return 0
    gone = 0
    async for run_ids in _pages(instance, before):
        old = _with_old_events(storage, run_ids)
        if is_dry:
            gone += sum(_count(storage, run_id) for run_id in old)
            continue
        for run_id in old:
            instance.compute_log_manager.delete_logs(prefix=[run_id, "compute_logs"])
        gone += await _forget(storage, old)
    return gone


async def _pages(instance: DagsterInstance, before: datetime) -> AsyncIterator[Sequence[str]]:
    """The ids of all ended runs that nobody has changed since then."""
    chosen, cursor = RunsFilter(statuses=list(ENDED), updated_before=before), None
    while run_ids := instance.run_storage.get_run_ids(chosen, cursor=cursor, limit=RUNS_AT_ONCE):
        yield run_ids
        cursor = run_ids[-1]
        await asyncio.sleep(0)


def _with_old_events(storage: SqlEventLogStorage, run_ids: Sequence[str]) -> Sequence[str]:
    if isinstance(storage, SqliteEventLogStorage):
        return [one for one in run_ids if has_old_events(storage.path_for_shard(one), KEPT_EVENTS)]
    with storage.index_connection() as connection:
        found = Events.select().with_only_columns(Events.c.run_id).where(*_old(run_ids)).distinct()
        return connection.execute(found).scalars().all()


def _count(storage: SqlEventLogStorage, run_id: str) -> int:
    connect: Connect = partial(storage.run_connection, run_id)
    with connect() as connection:
        found = Events.select().with_only_columns(Events.c.id).where(*_old([run_id]))
        return len(connection.execute(found).all())


async def _forget(storage: SqlEventLogStorage, run_ids: Sequence[str]) -> int:
    """On SQLite what tells of a run's state is in one file for all runs as well, besides the run's own."""
    if not run_ids:
        return 0
    gone = 0
    while went := _forget_some(storage.index_connection, run_ids):
        gone += went
        await asyncio.sleep(PAUSE_SECONDS)
    if isinstance(storage, SqliteEventLogStorage):
        gone = sum(empty_file(storage.path_for_shard(run_id), KEPT_EVENTS) for run_id in run_ids)
    return gone


def _forget_some(connect: Connect, run_ids: Sequence[str]) -> int:
    newest = Events.select().with_only_columns(Events.c.id).order_by(Events.c.id.desc()).limit(1)
    with connect() as connection:
        # Not the newest of all: SQLite would give its number out again, and sensors go on from a number.
        old = *_old(run_ids), Events.c.id < newest.scalar_subquery()
        found = Events.select().with_only_columns(Events.c.id).where(*old).order_by(Events.c.id).limit(EVENTS_AT_ONCE)
        return connection.execute(Events.delete().where(Events.c.id.in_(found))).rowcount


def _old(run_ids: Sequence[str]) -> tuple[Any, ...]:  # Any: see above
    kind = Events.c.dagster_event_type
    return Events.c.run_id.in_(run_ids), Events.c.asset_key.is_(None), kind.is_(None) | kind.not_in(KEPT_EVENTS)
