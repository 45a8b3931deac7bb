"""What is carried from a table: all that was claimed is tried, also where writing one of them down
breaks."""

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


class Letters:
    """Those that wait, and how each stood after its attempt; `broken` cannot be written down."""

    def __init__(self, *waiting: Message, broken: int = 0) -> None:
        self.waiting, self.broken = list(waiting), broken
        self.recorded: dict[int, Delivery] = {}

    @property
    def tray(self) -> DeliveryQueue[Message]:
        return DeliveryQueue(lambda _: bool(self.waiting), self._claim, self._record)

    def _claim(self, _session: Session) -> Sequence[Message]:
        claimed, self.waiting = self.waiting, []
        return claimed

    def _record(self, _session: Session, message: Message, delivery: Delivery) -> None:
        if message.id == self.broken:
            raise TransientError("The database is away.")
        self.recorded[message.id] = delivery


def deliver(database: Database, letters: Letters, sent: list[int]) -> int:
    async def send(message: Message, _now: datetime) -> WebhookAnswer:
        sent.append(message.id)
        return WebhookAnswer(200, "thanks")

    return asyncio.run(
        deliver_waiting(letters.tray, send, patience=DeliveryPolicy(attempts=3), database=database)
    )


def test_an_empty_queue_claims_nothing(database: Database) -> None:
    sent: list[int] = []
    assert (deliver(database, Letters(), sent), sent) == (0, [])


def test_every_claimed_delivery_is_sent_and_recorded(database: Database) -> None:
    letters, sent = Letters(Message(1), Message(2)), []
    assert deliver(database, letters, sent) == 2
    assert sorted(sent) == [1, 2]
    assert {one.status for one in letters.recorded.values()} == {DeliveryStatus.SENT}


def test_a_delivery_interrupted_on_every_attempt_fails_without_being_sent(
    database: Database,
) -> None:
    letters, sent = Letters(Message(1, attempt=4)), []
    deliver(database, letters, sent)
    assert sent == []
    assert (letters.recorded[1].status, letters.recorded[1].error) == (
        DeliveryStatus.FAILED,
        BROKE_OFF,
    )


def test_a_recording_error_is_raised_after_the_other_deliveries(
    database: Database,
) -> None:
    letters, sent = Letters(Message(1), Message(2), Message(3), broken=1), []
    with pytest.raises(TransientError, match="database is away"):
        deliver(database, letters, sent)
    assert sorted(letters.recorded) == [2, 3]
