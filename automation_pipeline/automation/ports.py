"""What this room needs of the outside world: who carries messages about runs, and with what a batch is worked on."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from automation_pipeline.audits.domain.audit import Standing as AuditStanding
from automation_pipeline.audits.domain.audit import Wish as AuditWish
from automation_pipeline.automation.domain.delivery import Answer, Patience
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.events import Event
from automation_pipeline.storage.database import Database
from automation_pipeline.transcription.stages.begin_transcription import Wish as TranscriptionWish


class WebhookSender(Protocol):
    async def send(self, url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """What the receiver said to this POST, whatever its status: one attempt, with 307 and 308 followed.

        TransientError: no answer this time. PermanentError: the address, or one that it leads to, is not called. No
        text holds any part of the address but its origin.
        """
        ...


class MailSender(Protocol):
    async def send(self, to: str, subject: str, text: str, *, delivery: str) -> None:
        """The mail server has taken the message. `delivery` makes it known again when it is sent twice.

        TransientError: not this time. PermanentError: another attempt would end the same way. No text holds the
        password.
        """
        ...

    async def check(self) -> None:
        """Nothing, when the mail server answers and lets us in; else an error that says what is wrong."""
        ...


class EventPublisher(Protocol):
    async def publish(self, events: Sequence[Event]) -> None:
        """All of them are out, in this order. TransientError: some may not be; they are given again."""
        ...


@dataclass(frozen=True)
class PostOffice:
    """Who carries what. Without `mail` e-mails fail; without `publisher` events stay in the table as the record."""

    webhooks: WebhookSender
    mail: MailSender | None
    publisher: EventPublisher | None
    secret: str | None
    patience: Patience


@dataclass(frozen=True)
class WorkKnobs:
    """How long the fiches of a batch may wait for transcripts and for audits, and how many are audited at once."""

    transcription_seconds: float
    audit_seconds: float
    longest_pause_seconds: float
    audits_at_once: int


@dataclass(frozen=True)
class Workshop:
    """What a batch is worked on with. The providers behind it are made when they are first needed."""

    database: Database
    clock: Clock
    knobs: WorkKnobs
    transcribe: Callable[[Sequence[TranscriptionWish]], Awaitable[object]]
    audit: Callable[[AuditWish], Awaitable[AuditStanding]]
