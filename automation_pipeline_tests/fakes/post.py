"""Receivers of messages that take, refuse and break as a test says: the answers come in turn, the
last one for good."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from automation_pipeline.automation.ports import PublishResult
from automation_pipeline.core.errors import TransientError
from automation_pipeline.core.events import Event
from automation_pipeline.core.webhooks import WebhookAnswer

Behaviour = WebhookAnswer | Exception

TAKEN = WebhookAnswer(200, "thanks")


@dataclass(frozen=True)
class Posted:
    url: str
    body: bytes
    headers: Mapping[str, str]


@dataclass
class FakeWebhookSender:
    """`by_url` wins over `answers`."""

    answers: list[Behaviour] = field(default_factory=lambda: [TAKEN])
    by_url: dict[str, Behaviour] = field(default_factory=dict)
    posted: list[Posted] = field(default_factory=list)

    async def send(self, url: str, body: bytes, headers: Mapping[str, str]) -> WebhookAnswer:
        self.posted.append(Posted(url, body, headers))
        behaviour = self.by_url.get(url) or (
            self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        )
        if isinstance(behaviour, Exception):
            raise behaviour
        return behaviour


@dataclass
class FakeMailSender:
    refusals: list[Exception] = field(default_factory=list)
    sent: list[tuple[str, str, str, str]] = field(default_factory=list)

    async def send(self, to: str, subject: str, text: str, *, delivery: str) -> None:
        if self.refusals:
            raise self.refusals.pop(0)
        self.sent.append((to, subject, text, delivery))

    async def check(self) -> None:
        return


@dataclass
class FakePublisher:
    """Takes events one by one. One with a `poison` key is refused for its reason; while there is an
    `outage` none is taken, and `away` is a bug on the way."""

    poison: Mapping[str, Exception] = field(default_factory=dict)
    away: bool = False
    outage: TransientError | None = None
    published: list[str] = field(default_factory=list)
    asked: int = 0

    async def publish(self, events: Sequence[Event]) -> PublishResult:
        self.asked += 1
        if self.away:
            raise ConnectionResetError
        for number, event in enumerate(events):
            refusal = self.outage or self.poison.get(event.key)
            if refusal is not None:
                return PublishResult(number, refusal)
            self.published.append(event.key)
        return PublishResult(len(events))
