"""Interfaces to external systems that automations need: message delivery, and the context of a
batch."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from automation_pipeline.audits.models.audits import AuditSummary, FicheAuditRequest
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import AutomationError
from automation_pipeline.core.events import Event
from automation_pipeline.core.webhooks import DeliveryPolicy, WebhookSender
from automation_pipeline.storage.database import Database
from automation_pipeline.transcription.models import TranscriptionRunRequest, TranscriptionSummary

STALL_POLLS = 3


class MailSender(Protocol):
    async def send(self, to: str, subject: str, text: str, *, delivery: str) -> None:
        """Hand the message to the mail server. `delivery` identifies the message when it is sent
        twice.

        TransientError: a later attempt may succeed. PermanentError: no later attempt can succeed.
        Error messages do not contain the password.
        """
        ...

    async def check(self) -> None:
        """Raise an error with the cause if the mail server does not answer or refuses the login."""
        ...


@dataclass(frozen=True)
class PublishResult:
    """Exactly the first `out` events are published. `stopped` is the reason why the next one is
    not: a TransientError affects all later events, any other error only that event."""

    out: int
    stopped: Exception | None = None


class EventPublisher(Protocol):
    async def publish(self, events: Sequence[Event]) -> PublishResult:
        """Publish the events in order, up to the first that fails. An event that is passed again
        may be published twice."""
        ...


@dataclass(frozen=True)
class ChannelMember:
    """A member of a channel, as the other members see it."""

    id: str
    info: Mapping[str, object]


class ChannelClient(Protocol):
    def authenticate(
        self, channel: str, socket_id: str, member: ChannelMember
    ) -> Mapping[str, str]:
        """The token with which a browser joins a private or presence channel. The caller has
        already checked that the member may join.

        InvalidInputError: the channel name or the socket id is not valid.
        """
        ...

    async def trigger(self, channel: str, name: str, payload: object) -> None:
        """Send one event. TransientError: a later attempt may succeed. PermanentError: no later
        attempt can succeed."""
        ...

    async def check(self) -> None:
        """Raise an error with the cause if the provider does not answer or refuses the
        credentials."""
        ...


class RealtimeClient(EventPublisher, ChannelClient, Protocol):
    """Sends realtime updates to browsers. Error messages do not contain secrets."""


@dataclass(frozen=True)
class DeliveryServices:
    """The clients that deliver messages. Without `mail`, e-mails fail. Without `publisher`, events
    stay in the table as the record."""

    webhooks: WebhookSender
    mail: MailSender | None
    publisher: EventPublisher | None
    secret: str | None
    delivery_policy: DeliveryPolicy


@dataclass(frozen=True)
class WorkOptions:
    """`transcription_seconds` and `audit_seconds` are the time budgets of transcripts and audits.
    They count from the start of the run, over all batches and attempts.

    `transcribes_ahead`: an audit step also transcribes the recordings of the next batch. This is
    for runs in one process, which execute one step at a time.

    `audit_poll_seconds` is the interval of the log lines about audits. Three lines without progress
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
    """The services that process a batch. Provider clients are created on first use.

    `begin_transcriptions` returns, per request and in order, the run that processes the fiche or
    the reason why none does. `transcribe` works until the runs of the given ids end, and claims no
    more work once `stop` is set; its second argument names the runs that this run started.
    """

    database: Database
    clock: Clock
    options: WorkOptions
    begin_transcriptions: Callable[
        [Sequence[TranscriptionRunRequest]],
        Awaitable[Sequence[TranscriptionSummary | AutomationError]],
    ]
    transcribe: Callable[..., Awaitable[object]]
    audit: Callable[[FicheAuditRequest], Awaitable[AuditSummary]]
