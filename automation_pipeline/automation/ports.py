"""What this room needs of the outside world: who carries messages about runs, and with what a batch
is worked on."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from automation_pipeline.audits.models.audits import AuditSummary as AuditStanding
from automation_pipeline.audits.models.audits import FicheAuditRequest as AuditWish
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import AutomationError
from automation_pipeline.core.events import Event
from automation_pipeline.core.webhooks import DeliveryPolicy, WebhookSender
from automation_pipeline.storage.database import Database
from automation_pipeline.transcription.models import TranscriptionRunRequest as TranscriptionWish
from automation_pipeline.transcription.models import TranscriptionSummary

STALL_POLLS = 3


class MailSender(Protocol):
    async def send(self, to: str, subject: str, text: str, *, delivery: str) -> None:
        """The mail server has taken the message. `delivery` makes it known again when it is sent
        twice.

        TransientError: not this time. PermanentError: another attempt would end the same way. No
        text holds the password.
        """
        ...

    async def check(self) -> None:
        """Nothing, when the mail server answers and lets us in; else an error that says what is
        wrong."""
        ...


@dataclass(frozen=True)
class PublishResult:
    """The first `out` events are out, and no other. `stopped` says why the next one is not: a
    TransientError holds up all of them, anything else is about that event alone."""

    out: int
    stopped: Exception | None = None


class EventPublisher(Protocol):
    async def publish(self, events: Sequence[Event]) -> PublishResult:
        """Brings them out in this order, up to the first that cannot be. What is given again may
        come out twice."""
        ...


@dataclass(frozen=True)
class ChannelMember:
    """Somebody who joins a channel, as the others on it may see them."""

    id: str
    info: Mapping[str, object]


class ChannelClient(Protocol):
    def authenticate(
        self, channel: str, socket_id: str, member: ChannelMember
    ) -> Mapping[str, str]:
        """What the browser shows to join the private or presence channel. Whether it may was
        decided before.

        InvalidInputError: no such name, or no such socket.
        """
        ...

    async def trigger(self, channel: str, name: str, payload: object) -> None:
        """One event is out. TransientError: not this time. PermanentError: it never will be."""
        ...

    async def check(self) -> None:
        """Nothing, when the provider answers and knows us; else an error that says what is
        wrong."""
        ...


class RealtimeClient(EventPublisher, ChannelClient, Protocol):
    """What browsers are shown while it happens. No text of any error holds a secret."""


@dataclass(frozen=True)
class DeliveryServices:
    """Who carries what. Without `mail` e-mails fail; without `publisher` events stay in the table
    as the record."""

    webhooks: WebhookSender
    mail: MailSender | None
    publisher: EventPublisher | None
    secret: str | None
    patience: DeliveryPolicy


@dataclass(frozen=True)
class WorkOptions:
    """Transcripts and audits may take until so many seconds after the run's start, over all batches and
    attempts. How many fiches are audited at once.

    `transcribes_ahead`: one process executes one step at a time, so that an audit step works on the
    recordings of the next batch meanwhile.

    `audit_poll_seconds`: how often the run's log has a line about audits; three without progress
    are a stall.
    """

    transcription_seconds: float
    audit_seconds: float
    longest_pause_seconds: float
    audits_at_once: int
    audit_poll_seconds: float = 60.0
    transcribes_ahead: bool = False

    @property
    def stall_seconds(self) -> float:
        return STALL_POLLS * self.audit_poll_seconds


@dataclass(frozen=True)
class BatchContext:
    """What a batch is worked on with. The providers behind it are made when they are first needed.

    `begin_transcriptions` answers each request, in order, with the run that works on its fiche or
    with why none does; `transcribe` works until the runs of these ids are over, or claims no more
    once `stop` is set; its second argument names those that this run began.
    """

    database: Database
    clock: Clock
    knobs: WorkOptions
    begin_transcriptions: Callable[
        [Sequence[TranscriptionWish]], Awaitable[Sequence[TranscriptionSummary | AutomationError]]
    ]
    transcribe: Callable[..., Awaitable[object]]
    audit: Callable[[AuditWish], Awaitable[AuditStanding]]
