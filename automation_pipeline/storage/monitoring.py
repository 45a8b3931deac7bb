"""What processes report: metrics, and heartbeats on the database's clock."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import UniqueConstraint, delete, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from automation_pipeline.core.logs import log
from automation_pipeline.core.metrics import Meter
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.statements import database_now, database_time, insert_into
from automation_pipeline.storage.types import BigId, Table, UtcDateTime


class MetricRow(Table):
    __tablename__ = "measures"
    __table_args__ = (UniqueConstraint("name", "labels"),)

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    name: Mapped[str]
    # In the format of Prometheus, sorted by name: provider="crm",status="200"
    labels: Mapped[str]
    value: Mapped[float]


@dataclass(frozen=True)
class MetricValue:
    name: str
    labels: str
    value: float


def add_metrics(session: Session, measures: Iterable[MetricValue]) -> None:
    """All processes write the rows in the same order, which prevents deadlocks."""
    for one in sorted(measures, key=lambda measure: (measure.name, measure.labels)):
        insert = insert_into(session, MetricRow)
        session.execute(
            insert.values(name=one.name, labels=one.labels, value=one.value).on_conflict_do_update(
                index_elements=["name", "labels"], set_={"value": MetricRow.value + one.value}
            )
        )


def all_metrics(session: Session) -> list[MetricValue]:
    rows = session.execute(
        select(MetricRow.name, MetricRow.labels, MetricRow.value).order_by(MetricRow.id)
    )
    return [MetricValue(*row) for row in rows.tuples()]


FLUSH_SECONDS = 10.0

_log = log(__name__)


@dataclass(frozen=True)
class MetricsFlusher:
    """Without counted metrics, it neither opens the database nor writes."""

    meter: Meter
    database: Callable[[], Database]
    every_seconds: float = FLUSH_SECONDS

    def flush(self) -> None:
        """Never raises an error: metrics that cannot be written now are written by the next flush."""
        drained = self.meter.drain()
        if not drained:
            return
        try:
            with self.database().transaction() as session:
                add_metrics(session, [MetricValue(*key, amount) for key, amount in drained.items()])
        except Exception as error:  # noqa: BLE001  counts are never a reason for the work to fail
            self.meter.put_back(drained)
            _log.warning(
                "Measures could not be written, which is tried again: %s", type(error).__name__
            )

    @asynccontextmanager
    async def in_background(self) -> AsyncGenerator[None]:
        """Flushes while the body runs, and once more at its end."""

        async def keep_flushing() -> None:
            while True:
                await asyncio.sleep(self.every_seconds)
                await asyncio.to_thread(self.flush)

        flushing = asyncio.create_task(keep_flushing())
        try:
            yield
        finally:
            flushing.cancel()
            await asyncio.gather(flushing, return_exceptions=True)
            await asyncio.to_thread(self.flush)


DAEMON = "dagster-daemon"
SHORTEST_INTERVAL_SECONDS = 5.0


class ProcessHeartbeatRow(Table):
    __tablename__ = "pulses"

    name: Mapped[str] = mapped_column(primary_key=True)
    beat_at: Mapped[datetime] = mapped_column(UtcDateTime)


def record_heartbeat(session: Session, name: str) -> None:
    insert = insert_into(session, ProcessHeartbeatRow)
    session.execute(
        insert.values(name=name, beat_at=database_now()).on_conflict_do_update(
            index_elements=["name"], set_={"beat_at": database_now()}
        )
    )


def heartbeat_of(database: Database, name: str) -> Callable[[], None]:
    """A function that records a heartbeat, at most every few seconds."""
    last = float("-inf")

    def beat() -> None:
        nonlocal last
        if time.monotonic() - last >= SHORTEST_INTERVAL_SECONDS:
            with database.transaction() as session:
                record_heartbeat(session, name)
            last = time.monotonic()

    return beat


def seconds_since_heartbeat(session: Session, name: str) -> float | None:
    beat_at = session.scalar(
        select(ProcessHeartbeatRow.beat_at).where(ProcessHeartbeatRow.name == name)
    )
    return None if beat_at is None else (database_time(session) - beat_at).total_seconds()


# The step key of the process that executes a run, or waits for its steps: a run whose steps are
# queued is not lost.
RUN_WORKER = ""


class StepHeartbeatRow(Table):
    """A step in progress. The end of the step removes the row; a row without recent heartbeats
    belongs to a lost worker."""

    __tablename__ = "step_beats"

    dagster_run_id: Mapped[str] = mapped_column(primary_key=True)
    step_key: Mapped[str] = mapped_column(primary_key=True)
    worker: Mapped[str]
    beat_at: Mapped[datetime] = mapped_column(UtcDateTime)


@dataclass(frozen=True)
class StepHeartbeat:
    dagster_run_id: str
    step_key: str
    worker: str
    beat_at: datetime
    now: datetime


def record_step_heartbeat(
    session: Session, dagster_run_id: str, step_key: str, worker: str
) -> None:
    key, changes = (
        {"dagster_run_id": dagster_run_id, "step_key": step_key},
        {"worker": worker, "beat_at": database_now()},
    )
    beat = insert_into(session, StepHeartbeatRow).values(**key, **changes)
    session.execute(
        beat.on_conflict_do_update(index_elements=["dagster_run_id", "step_key"], set_=changes)
    )


def end_step(session: Session, dagster_run_id: str, step_key: str, worker: str) -> None:
    """Remove the row of the step, unless another worker has started the same step since."""
    mine = (
        StepHeartbeatRow.dagster_run_id == dagster_run_id,
        StepHeartbeatRow.step_key == step_key,
        StepHeartbeatRow.worker == worker,
    )
    session.execute(delete(StepHeartbeatRow).where(*mine))


def delete_step_heartbeats(session: Session, dagster_run_id: str) -> None:
    session.execute(
        delete(StepHeartbeatRow).where(StepHeartbeatRow.dagster_run_id == dagster_run_id)
    )


def step_heartbeats(session: Session, dagster_run_id: str | None = None) -> list[StepHeartbeat]:
    query = select(
        StepHeartbeatRow.dagster_run_id,
        StepHeartbeatRow.step_key,
        StepHeartbeatRow.worker,
        StepHeartbeatRow.beat_at,
        database_now(),
    ).order_by(StepHeartbeatRow.beat_at)
    if dagster_run_id is not None:
        query = query.where(StepHeartbeatRow.dagster_run_id == dagster_run_id)
    return [StepHeartbeat(*row) for row in session.execute(query).tuples()]
