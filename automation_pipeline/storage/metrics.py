"""Counters that all processes add to, and the loop that writes them."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from sqlalchemy import UniqueConstraint, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from automation_pipeline.core.logs import log
from automation_pipeline.core.metrics import Meter
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.statements import insert_into
from automation_pipeline.storage.types import BigId, Table


class MetricRow(Table):
    __tablename__ = "measures"
    __table_args__ = (UniqueConstraint("name", "labels"),)

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    name: Mapped[str]
    # As Prometheus writes them, in the order of their names: provider="crm",status="200"
    labels: Mapped[str]
    value: Mapped[float]


@dataclass(frozen=True)
class MetricValue:
    name: str
    labels: str
    value: float


def add_metrics(session: Session, measures: Iterable[MetricValue]) -> None:
    """In one order for all processes, which prevents deadlocks."""
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
    """Opens and writes nothing if nothing was counted."""

    meter: Meter
    database: Callable[[], Database]
    every_seconds: float = FLUSH_SECONDS

    def flush(self) -> None:
        """Never raises: what cannot be written now is written with the next flush."""
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
