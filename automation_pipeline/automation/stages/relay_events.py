"""Carry what waits in the outbox to where it belongs, for a bounded time. Two at once share the work."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime
from uuid import uuid4

from automation_pipeline.automation.ports import PostOffice
from automation_pipeline.automation.stages.deliver_notifications import deliver_notifications
from automation_pipeline.automation.stages.publish_events import publish_events
from automation_pipeline.fiches.stages.deliver_job_webhooks import deliver_job_webhooks
from automation_pipeline.fiches.store.job_deliveries import is_delivery_due
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.outbox import is_waiting

BUDGET_SECONDS = 20.0
# Longer than any batch takes, so that nobody else gets what is being carried.
HOLD_SECONDS = 120.0


@dataclass(frozen=True)
class Relayed:
    events: int
    messages: int


async def relay_events(
    post: PostOffice,
    *,
    database: Database,
    budget_seconds: float = BUDGET_SECONDS,
    hold_seconds: float = HOLD_SECONDS,
    beat: Callable[[], None] = lambda: None,
    caused_since: datetime | None = None,
) -> Relayed:
    """Nothing new is begun when the budget is used up: the last calls may take longer. Events, messages and webhooks of
    jobs are relayed concurrently, each until nothing waits, so that a slow receiver delays no other kind. `beat` is
    called now and then. With `caused_since`, only aggregates that have events from that instant on are relayed."""
    worker = f"relay-{uuid4().hex}"  # not the process: it may run two of us
    ends_at = time.monotonic() + budget_seconds

    async def drain(carry: Callable[[float], Coroutine[object, object, int]]) -> int:
        carried = 0
        while (left := ends_at - time.monotonic()) > 0 and _is_any_waiting(database, caused_since):
            count = await carry(left)
            if not count:
                break
            carried += count
        return carried

    def publish(left: float) -> Coroutine[object, object, int]:
        return publish_events(
            post.publisher,
            worker,
            database=database,
            hold_seconds=hold_seconds,
            budget_seconds=left,
            beat=beat,
            caused_since=caused_since,
        )

    def send(_: float) -> Coroutine[object, object, int]:
        return deliver_notifications(
            post, worker, database=database, hold_seconds=hold_seconds, caused_since=caused_since
        )

    def send_of_jobs(_: float) -> Coroutine[object, object, int]:
        return deliver_job_webhooks(post.webhooks, database=database, hold_seconds=hold_seconds)

    events, *messages = await _side_by_side(drain(publish), drain(send), drain(send_of_jobs))
    return Relayed(events, sum(messages))


async def _side_by_side(*works: Coroutine[object, object, int]) -> list[int]:
    ended = await asyncio.gather(*works, return_exceptions=True)
    for broken in ended:  # after the others are through
        if isinstance(broken, BaseException):
            raise broken
    return [count for count in ended if isinstance(count, int)]


def _is_any_waiting(database: Database, caused_since: datetime | None) -> bool:
    with database.reading() as session:
        return is_waiting(session, caused_since) or is_delivery_due(session)
