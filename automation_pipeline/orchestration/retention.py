"""Removal of old rows: ours, and Dagster's event log and runs."""

import asyncio
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from dagster import DagsterInstance, DagsterRunStatus, MetadataValue, RunsFilter
from dagster._core.events import ASSET_CHECK_EVENTS, ASSET_EVENTS
from dagster._core.storage.event_log.schema import SqlEventLogStorageTable as Events
from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage
from dagster._core.storage.runs.schema import RunsTable, RunTagsTable
from dagster._core.storage.runs.sql_run_storage import SqlRunStorage

from automation_pipeline.bootstrap import Services
from automation_pipeline.core.logs import log
from automation_pipeline.orchestration import metadata
from automation_pipeline.retention import go_round

_BUSY_SECONDS = 5.0
_log = log(__name__)


def has_old_events(path: str, kept: Sequence[str]) -> bool:
    """Whether there are events of other kinds than those that are kept."""
    with _opened(path) as events:
        return (
            events is not None
            and events.execute(f"SELECT 1 {_old(kept)} LIMIT 1", kept).fetchone() is not None
        )


def empty_file(path: str, kept: Sequence[str]) -> int:
    """How many events went. The file stays, and small: Dagster's processes remember that it is
    there."""
    with _opened(path) as events:
        if events is None:
            return 0
        try:
            gone = events.execute(f"DELETE {_old(kept)}", kept).rowcount
            events.execute("VACUUM")
        except sqlite3.OperationalError as error:  # somebody is reading it: there is another day
            _log.warning(
                "Events of a run are kept for another day", file=Path(path).name, error=str(error)
            )
            return 0
        return gone


def remove_file(path: str) -> None:
    """With what SQLite has put beside it."""
    for name in (path, f"{path}-wal", f"{path}-shm"):
        with suppress(FileNotFoundError):
            Path(name).unlink()


def _old(kept: Sequence[str]) -> str:
    marks = ", ".join("?" * len(kept))
    kind = f"dagster_event_type IS NULL OR dagster_event_type NOT IN ({marks})"
    return f"FROM event_logs WHERE asset_key IS NULL AND ({kind})"


@contextmanager
def _opened(path: str) -> Iterator[sqlite3.Connection | None]:
    """None where there is no such file: it is not made."""
    if not Path(path).exists():
        yield None
        return
    address = f"{Path(path).as_uri()}?mode=rw"
    with closing(
        sqlite3.connect(address, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)
    ) as events:
        yield events


RUNS_AT_ONCE = 100
EVENTS_AT_ONCE = 1000
PAUSE_SECONDS = 0.05
ENDED = (DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED)
KEPT_EVENTS = tuple(sorted(kind.value for kind in ASSET_EVENTS | ASSET_CHECK_EVENTS))

# Any: connections and conditions are SQLAlchemy's, which only Dagster hands out here.
Connect = Callable[[], AbstractContextManager[Any]]


async def forget_events(
    instance: DagsterInstance, before: datetime, *, is_dry: bool = False
) -> int:
    """How many events of runs that ended before went, or would. Their steps' own lines go first: as
    long as there are events, whoever comes after one that was killed finds the run again."""
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
        found = (
            Events.select()
            .with_only_columns(Events.c.run_id)
            .where(*_old_of_event_log(run_ids))
            .distinct()
        )
        return connection.execute(found).scalars().all()


def _count(storage: SqlEventLogStorage, run_id: str) -> int:
    connect: Connect = partial(storage.run_connection, run_id)
    with connect() as connection:
        found = Events.select().with_only_columns(Events.c.id).where(*_old_of_event_log([run_id]))
        return len(connection.execute(found).all())


async def _forget(storage: SqlEventLogStorage, run_ids: Sequence[str]) -> int:
    """On SQLite what tells of a run's state is in one file for all runs as well, besides the run's
    own."""
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
        # Not the newest of all: SQLite would give its number out again, and sensors go on from a
        # number.
        old = *_old_of_event_log(run_ids), Events.c.id < newest.scalar_subquery()
        found = (
            Events.select()
            .with_only_columns(Events.c.id)
            .where(*old)
            .order_by(Events.c.id)
            .limit(EVENTS_AT_ONCE)
        )
        return connection.execute(Events.delete().where(Events.c.id.in_(found))).rowcount


def _old_of_event_log(run_ids: Sequence[str]) -> tuple[Any, ...]:  # Any: see above
    kind = Events.c.dagster_event_type
    return (
        Events.c.run_id.in_(run_ids),
        Events.c.asset_key.is_(None),
        kind.is_(None) | kind.not_in(KEPT_EVENTS),
    )


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


async def keep_house(
    instance: DagsterInstance, our: Services, *, is_dry: bool = False
) -> Mapping[str, int]:
    """How many rows of each kind went, or would."""
    settings, now = our.settings, our.clock.now()
    events, runs = settings.dagster_events_keep_days, settings.dagster_runs_keep_days
    ours = await go_round(our, is_dry=is_dry)
    return {
        **ours,
        "dagster events": await forget_events(instance, _before(now, events), is_dry=is_dry)
        if events
        else 0,
        "dagster runs": await forget_runs(instance, _before(now, runs), is_dry=is_dry)
        if runs
        else 0,
    }


def housekeeping_page(gone: Mapping[str, int]) -> dict[str, MetadataValue]:
    """As metadata: the sum, and what it is made of."""
    rows = "".join(f"| {name} | {count:,} |\n" for name, count in gone.items())
    table = metadata.markdown(f"| What | Rows |\n|---|---:|\n{rows}")
    return {"rows": metadata.integer(sum(gone.values())), "kinds": table}


def _before(now: datetime, keep_days: int) -> datetime:
    return now - timedelta(days=keep_days)
