"""Interfaces to external systems that automations need: message delivery, and the context of a
batch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from automation_pipeline.core.events import Event
from automation_pipeline.core.webhooks import DeliveryPolicy, WebhookSender


class MailSender(Protocol):
    async def send(self, to: str, subject: str, text: str, *, delivery: str) -> None:
        """Hand the message to the mail server. `delivery` identifies the message when it is sent
        twice.

        Raises TransientError if a later attempt may succeed, else PermanentError.
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

        Raises InvalidInputError if the channel name or the socket id is not valid.
        """
        ...

    async def trigger(self, channel: str, name: str, payload: object) -> None:
        """Send one event. Raises TransientError if a later attempt may succeed, else
        PermanentError."""
        ...

    async def check(self) -> None:
        """Raise an error with the cause if the provider does not answer or refuses the
        credentials."""
        ...


class RealtimeClient(EventPublisher, ChannelClient, Protocol):
    """Sends realtime updates to browsers. Error messages do not contain secrets."""


class DeliveryServices(Protocol):
    """The clients that deliver messages; each is opened when it is first used. Without `mail`,
    e-mails fail. Without `publisher`, events stay in the table as the record."""

    @property
    def webhooks(self) -> WebhookSender: ...

    @property
    def mail(self) -> MailSender | None: ...

    @property
    def publisher(self) -> EventPublisher | None: ...

    @property
    def webhook_secret(self) -> str | None: ...

    @property
    def delivery_policy(self) -> DeliveryPolicy: ...
