"""The delivery loop tries every claimed delivery, even if recording one of them fails."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import pytest

from automation_pipeline.core.errors import TransientError
from automation_pipeline.core.webhooks import (
    Delivery,
    DeliveryPolicy,
    DeliveryStatus,
    WebhookAnswer,
)
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.deliveries import BROKE_OFF, DeliveryQueue, deliver_waiting


@dataclass(frozen=True)
class Message:
    id: int
    attempt: int = 1


class InMemoryQueue:
    """A delivery queue in memory. Recording the message `broken` fails."""

    def __init__(self, *waiting: Message, broken: int = 0) -> None:
        self.waiting, self.broken = list(waiting), broken
        self.recorded: dict[int, Delivery] = {}

    @property
    def delivery_queue(self) -> DeliveryQueue[Message]:
        return DeliveryQueue(lambda _: bool(self.waiting), self._claim, self._record)

    def _claim(self, _session: Session) -> Sequence[Message]:
        claimed, self.waiting = self.waiting, []
        return claimed

    def _record(self, _session: Session, message: Message, delivery: Delivery) -> None:
        if message.id == self.broken:
            raise TransientError("The database is away.")
        self.recorded[message.id] = delivery


def deliver(database: Database, queue: InMemoryQueue, sent: list[int]) -> int:
    async def send(message: Message, _now: datetime) -> WebhookAnswer:
        sent.append(message.id)
        return WebhookAnswer(200, "thanks")

    return asyncio.run(
        deliver_waiting(
            queue.delivery_queue, send, policy=DeliveryPolicy(attempts=3), database=database
        )
    )


def test_an_empty_queue_claims_nothing(database: Database) -> None:
    sent: list[int] = []
    assert (deliver(database, InMemoryQueue(), sent), sent) == (0, [])


def test_every_claimed_delivery_is_sent_and_recorded(database: Database) -> None:
    queue, sent = InMemoryQueue(Message(1), Message(2)), []
    assert deliver(database, queue, sent) == 2
    assert sorted(sent) == [1, 2]
    assert {one.status for one in queue.recorded.values()} == {DeliveryStatus.SENT}


def test_a_delivery_interrupted_on_every_attempt_fails_without_being_sent(
    database: Database,
) -> None:
    queue, sent = InMemoryQueue(Message(1, attempt=4)), []
    deliver(database, queue, sent)
    assert sent == []
    assert (queue.recorded[1].status, queue.recorded[1].error) == (
        DeliveryStatus.FAILED,
        BROKE_OFF,
    )


def test_a_recording_error_is_raised_after_the_other_deliveries(
    database: Database,
) -> None:
    queue, sent = InMemoryQueue(Message(1), Message(2), Message(3), broken=1), []
    with pytest.raises(TransientError, match="database is away"):
        deliver(database, queue, sent)
    assert sorted(queue.recorded) == [2, 3]
