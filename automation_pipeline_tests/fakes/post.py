"""Receivers of messages that take, refuse and break as a test says: the answers come in turn, the last one for good."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from automation_pipeline.automation.domain.delivery import Answer
from automation_pipeline.core.events import Event

Behaviour = Answer | Exception

TAKEN = Answer(200, "thanks")


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

    async def send(self, url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        self.posted.append(Posted(url, body, headers))
        behaviour = self.by_url.get(url) or (self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])
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
    """Events with one of the `poison` keys break every batch that they are in."""

    poison: Mapping[str, Exception] = field(default_factory=dict)
    away: bool = False
    published: list[str] = field(default_factory=list)

    async def publish(self, events: Sequence[Event]) -> None:
        if self.away:
            raise ConnectionResetError
        for event in events:
            if event.key in self.poison:
                raise self.poison[event.key]
        self.published += [event.key for event in events]
