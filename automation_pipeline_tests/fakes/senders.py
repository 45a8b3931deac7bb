"""Senders of webhooks, mails and events that record what they send, and fail as a test specifies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from automation_pipeline.automation.ports import PublishResult
from automation_pipeline.core.errors import TransientError
from automation_pipeline.core.events import Event
from automation_pipeline.core.webhooks import WebhookAnswer

Response = WebhookAnswer | Exception

ACCEPTED = WebhookAnswer(200, "thanks")


@dataclass(frozen=True)
class Posted:
    url: str
    body: bytes
    headers: Mapping[str, str]


@dataclass
class FakeWebhookSender:
    """Answers with `by_url`, else with the next of `answers`; the last answer repeats."""

    answers: list[Response] = field(default_factory=lambda: [ACCEPTED])
    by_url: dict[str, Response] = field(default_factory=dict)
    posted: list[Posted] = field(default_factory=list)

    async def send(self, url: str, body: bytes, headers: Mapping[str, str]) -> WebhookAnswer:
        self.posted.append(Posted(url, body, headers))
        response = self.by_url.get(url) or (
            self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        )
        if isinstance(response, Exception):
            raise response
        return response


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
    """Publishes one event after the other. `refused` maps keys of events to the error that refuses
    them, and `outage` refuses all events. With `is_disconnected`, publishing raises an unexpected
    exception. `attempts` counts the calls."""

    refused: Mapping[str, Exception] = field(default_factory=dict)
    is_disconnected: bool = False
    outage: TransientError | None = None
    published: list[str] = field(default_factory=list)
    attempts: int = 0

    async def publish(self, events: Sequence[Event]) -> PublishResult:
        self.attempts += 1
        if self.is_disconnected:
            raise ConnectionResetError
        for number, event in enumerate(events):
            refusal = self.outage or self.refused.get(event.key)
            if refusal is not None:
                return PublishResult(number, refusal)
            self.published.append(event.key)
        return PublishResult(len(events))
