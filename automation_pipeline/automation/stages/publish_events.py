"""Give waiting events to whoever publishes them, oldest first. Messages to receivers go another way."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from random import Random

from automation_pipeline.automation.domain.notifications import EVENT
from automation_pipeline.automation.ports import EventPublisher, Published
from automation_pipeline.core.channels import is_internal
from automation_pipeline.core.errors import AutomationError, TransientError
from automation_pipeline.core.retry import Backoff
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.outbox import ClaimedEvent, mark_published, park, put_back
from automation_pipeline.storage.outbox_order import claim_in_order, count_attempts, hand_back, take_turn
from automation_pipeline.storage.pauses import end_pause, is_paused, last_pause_seconds, pause

AT_ONCE = 200
# Between two handfuls it is seen whether the claim still holds.
HANDFUL = 10
MOST_ATTEMPTS = 5
PAUSE = "publisher"
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 2.0, 60.0
# After so long a pause, the fourth in a row, an outage may be one event that the publisher breaks on.
DOUBTFUL_PAUSE_SECONDS = 16.0
_BACKOFF = Backoff(base_seconds=10, cap_seconds=3600)


@dataclass
class _Carried:
    """How claimed events stand: none of `waiting` was tried to its end."""

    waiting: list[ClaimedEvent]
    out: list[ClaimedEvent] = field(default_factory=list[ClaimedEvent])
    failed: list[tuple[ClaimedEvent, str]] = field(default_factory=list[tuple[ClaimedEvent, str]])
    held_up: list[ClaimedEvent] = field(default_factory=list[ClaimedEvent])
    outage: TransientError | None = None


async def publish_events(  # noqa: PLR0913  the bounds of one relay
    publisher: EventPublisher | None,
    worker: str,
    *,
    database: Database,
    hold_seconds: float,
    budget_seconds: float = float("inf"),
    beat: Callable[[], None] = lambda: None,
    caused_since: datetime | None = None,
) -> int:
    """How many are out. Without a publisher all are: the table is their record. Each handful begins with a `beat`.

    When the publisher is away they all wait, in their order, and everybody leaves it alone for a while. Behind an
    event that cannot be published only those of its aggregate wait.
    """
    with database.transaction() as session:
        if publisher is not None and is_paused(session, PAUSE):
            return 0
        is_doubtful = last_pause_seconds(session, PAUSE) >= DOUBTFUL_PAUSE_SECONDS
        claims = claim_in_order(
            session, worker, limit=AT_ONCE, hold_seconds=hold_seconds, but=EVENT, caused_since=caused_since
        )
        if publisher is None:
            mark_published(session, worker, [claimed.id for claimed in claims])
    if publisher is None or not claims:
        return len(claims)
    carried = _Carried(claims)
    ends_at = time.monotonic() + min(budget_seconds, hold_seconds / 2)
    try:
        if is_doubtful or claims[0].attempt > 1:
            beat()
            await _doubt(carried, publisher, ends_at)
        await _carry(carried, publisher, ends_at, beat)
    finally:  # interrupted too, what is out is out
        with database.transaction() as session:
            _settle(session, worker, carried)
    return len(carried.out)


async def _doubt(carried: _Carried, publisher: EventPublisher, ends_at: float) -> None:
    """The publisher may break on one event of the first handful: its events go alone."""
    for _ in range(HANDFUL):
        if carried.waiting and carried.outage is None and time.monotonic() < ends_at:
            await _send_one(carried, publisher, ends_at)


async def _send_one(carried: _Carried, publisher: EventPublisher, ends_at: float) -> None:
    """The first events of a few aggregates, each alone, until one is out: then what failed before it was no outage, and
    was tried. If none is, it is an outage, and costs nobody an attempt."""
    firsts = {claimed.event.correlation_id: claimed for claimed in reversed(carried.waiting)}
    doubted: list[tuple[ClaimedEvent, TransientError]] = []
    for claimed in sorted(firsts.values(), key=lambda claimed: claimed.id)[:HANDFUL]:
        if doubted and time.monotonic() >= ends_at:
            break
        stopped = (await _publish(publisher, [claimed])).stopped
        if isinstance(stopped, TransientError):
            doubted.append((claimed, stopped))
            if stopped.retry_after_seconds is not None:
                break
        elif stopped is not None:
            _set_aside(carried, claimed, stopped)
        else:
            carried.waiting.remove(claimed)
            carried.out.append(claimed)
            if not is_internal(claimed.event.name):  # an internal one goes nowhere, and proves nothing
                for failed, error in doubted:
                    _set_aside(carried, failed, error)
                return
    carried.outage = doubted[0][1] if doubted else None


async def _carry(carried: _Carried, publisher: EventPublisher, ends_at: float, beat: Callable[[], None]) -> None:
    """It ends long before the claim does: afterwards somebody else may be at the same events."""
    while carried.waiting and carried.outage is None and time.monotonic() < ends_at:
        beat()
        published = await _publish(publisher, carried.waiting[:HANDFUL])
        carried.out += carried.waiting[: published.out]
        del carried.waiting[: published.out]
        if isinstance(published.stopped, TransientError):
            carried.outage = published.stopped
        elif published.stopped is not None:
            _set_aside(carried, carried.waiting[0], published.stopped)


async def _publish(publisher: EventPublisher, claims: list[ClaimedEvent]) -> Published:
    try:
        return await publisher.publish([claimed.event for claimed in claims])
    except AutomationError as error:
        return Published(0, error)
    except Exception as error:  # noqa: BLE001  a bug with one event does not stop the others
        return Published(0, error) if len(claims) == 1 else await _publish(publisher, claims[:1])


def _set_aside(carried: _Carried, failed: ClaimedEvent, error: Exception) -> None:
    carried.waiting.remove(failed)
    carried.failed.append((failed, f"{type(error).__name__}: {error}"))
    aggregate = failed.event.correlation_id
    carried.held_up += [claimed for claimed in carried.waiting if claimed.event.correlation_id == aggregate]
    carried.waiting = [claimed for claimed in carried.waiting if claimed.event.correlation_id != aggregate]


def _settle(session: Session, worker: str, carried: _Carried) -> None:
    take_turn(session)
    mark_published(session, worker, [claimed.id for claimed in carried.out])
    count_attempts(session, worker, [claimed.id for claimed, _ in carried.failed])
    for claimed, error in carried.failed:
        if claimed.attempt >= MOST_ATTEMPTS:
            park(session, worker, claimed.id, error=error)
        else:
            delay = _BACKOFF.delay(claimed.attempt, Random())
            put_back(session, worker, claimed.id, error=error, delay_seconds=delay)
    untried = [claimed.id for claimed in (*carried.waiting, *carried.held_up)]
    hand_back(session, worker, untried, error=str(carried.outage) if carried.outage else None)
    if carried.outage is not None:
        wait = carried.outage.retry_after_seconds or 0.0
        pause(session, PAUSE, first_seconds=FIRST_PAUSE_SECONDS, cap_seconds=LONGEST_PAUSE_SECONDS, at_least=wait)
    elif carried.out:
        end_pause(session, PAUSE)
