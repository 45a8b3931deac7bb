"""Do the work of an attempt beside its heartbeats, until it is done or not wanted any more."""

import asyncio
from collections.abc import Callable, Coroutine

from automation_pipeline.core.errors import TransientError
from automation_pipeline.core.logs import log
from automation_pipeline.org_jobs.domain.endings import AttemptEnd

# Work that was told to stop may clean up for so long.
STOPS_WITHIN_SECONDS = 10.0
# After a heartbeat that failed.
_SOON_SECONDS = 1.0

_log = log(__name__)


async def tend_attempt(
    work: Coroutine[object, object, AttemptEnd], *, keep: Callable[[], AttemptEnd | None], lease_seconds: float
) -> AttemptEnd:
    """How it ended. `keep` is a heartbeat: it answers with an end where the work is to stop, and its errors stop the
    work too; a database that is away is waited for while the lease lasts. What the work raises, this does too."""
    task, clock = asyncio.ensure_future(work), asyncio.get_running_loop().time
    kept_at, wait = clock(), lease_seconds / 4
    try:
        while True:
            await asyncio.wait({task}, timeout=wait)
            if task.done():
                return task.result()
            asked_at = clock()
            try:
                stopped = await asyncio.to_thread(keep)
            except TransientError as error:
                if clock() - kept_at > lease_seconds:
                    raise
                _log.warning("A job's lease could not be extended, which is tried again: %s", error)
                wait = min(lease_seconds / 4, _SOON_SECONDS)
                continue
            kept_at, wait = asked_at, lease_seconds / 4
            if stopped is not None:
                await _stop(task)
                return stopped
    finally:
        await _stop(task)


async def _stop(task: "asyncio.Future[AttemptEnd]") -> None:
    task.cancel()
    await asyncio.wait({task}, timeout=STOPS_WITHIN_SECONDS)
    if task.done() and not task.cancelled():
        task.exception()  # so that nobody complains that it was never looked at
