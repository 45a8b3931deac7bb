"""From what a process has counted to the rows that all processes share: while it works, and when it is done."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from automation_pipeline.core.logs import log
from automation_pipeline.core.meter import Meter
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.measures import Measure, add_measures

FLUSH_SECONDS = 10.0

_log = log(__name__)


@dataclass(frozen=True)
class Metering:
    """Nothing is opened, and nothing written, where nothing was counted."""

    meter: Meter
    database: Callable[[], Database]
    every_seconds: float = FLUSH_SECONDS

    def flush(self) -> None:
        """Never an error: what cannot be written now is counted with the next."""
        drained = self.meter.drain()
        if not drained:
            return
        try:
            with self.database().transaction() as session:
                add_measures(session, [Measure(*key, amount) for key, amount in drained.items()])
        except Exception as error:  # noqa: BLE001  counts are never a reason for the work to fail
            self.meter.put_back(drained)
            _log.warning("Measures could not be written, which is tried again: %s", type(error).__name__)

    @asynccontextmanager
    async def beside(self) -> AsyncGenerator[None]:
        """Flushes beside the work, and once more after it, however it ends."""
        flushing = asyncio.create_task(self._keep_flushing())
        try:
            yield
        finally:
            flushing.cancel()
            await asyncio.gather(flushing, return_exceptions=True)
            await asyncio.to_thread(self.flush)

    async def _keep_flushing(self) -> None:
        while True:
            await asyncio.sleep(self.every_seconds)
            await asyncio.to_thread(self.flush)
