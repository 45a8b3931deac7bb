"""Give waiting events to whoever publishes them, oldest first. Messages to receivers go another way."""

from collections.abc import Sequence
from random import Random

from automation_pipeline.automation.domain.notifications import EVENT
from automation_pipeline.automation.ports import EventPublisher
from automation_pipeline.core.errors import TransientError
from automation_pipeline.core.retry import Backoff
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.outbox import (
    ClaimedEvent,
    claim_waiting,
    mark_published,
    park,
    put_all_back,
    put_back,
)

AT_ONCE = 200
MOST_ATTEMPTS = 5
_BACKOFF = Backoff(base_seconds=10, cap_seconds=3600)


async def publish_events(
    publisher: EventPublisher | None, worker: str, *, database: Database, hold_seconds: float
) -> int:
    """How many are out. Without a publisher all are: the table is their record.

    When the publisher is away they all wait, in their order, for the next time. An event that cannot be published is
    told apart from the others, which go on without it.
    """
    with database.transaction() as session:
        claims = claim_waiting(session, worker, limit=AT_ONCE, hold_seconds=hold_seconds, but=EVENT)
        if publisher is None:
            mark_published(session, worker, [claimed.id for claimed in claims])
    if publisher is None or not claims:
        return len(claims)
    try:
        return await _publish(publisher, claims, worker, database)
    except TransientError as error:
        with database.transaction() as session:
            ids = [claimed.id for claimed in claims]  # those that are out are not ours any more
            put_all_back(session, worker, ids, error=str(error), delay_seconds=0.0)
        return 0


async def _publish(publisher: EventPublisher, claims: Sequence[ClaimedEvent], worker: str, database: Database) -> int:
    try:
        await publisher.publish([claimed.event for claimed in claims])
    except TransientError:
        raise
    except Exception as error:  # noqa: BLE001  one that cannot be published does not stop the others
        if len(claims) == 1:
            _set_aside(claims[0], f"{type(error).__name__}: {error}", worker, database)
            return 0
        middle = len(claims) // 2
        halves = claims[:middle], claims[middle:]
        return sum([await _publish(publisher, half, worker, database) for half in halves])
    with database.transaction() as session:
        mark_published(session, worker, [claimed.id for claimed in claims])
    return len(claims)


def _set_aside(claimed: ClaimedEvent, error: str, worker: str, database: Database) -> None:
    with database.transaction() as session:
        if claimed.attempt >= MOST_ATTEMPTS:
            park(session, worker, claimed.id, error=error)
        else:
            delay = _BACKOFF.delay(claimed.attempt, Random())
            put_back(session, worker, claimed.id, error=error, delay_seconds=delay)
