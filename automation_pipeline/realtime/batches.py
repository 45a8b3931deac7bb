"""Events as the provider takes them: one entry a channel, whole events together in batches of a few entries."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from automation_pipeline.core.channels import channels_of
from automation_pipeline.core.errors import PermanentError
from automation_pipeline.core.events import Event
from automation_pipeline.realtime.payload import message_of

MOST_ENTRIES = 10


@dataclass(frozen=True)
class Entry:
    channel: str
    name: str
    data: str

    def document(self) -> dict[str, str]:
        return {"channel": self.channel, "name": self.name, "data": self.data}


Entries: TypeAlias = tuple[Entry, ...]


class NoMessageError(PermanentError):
    """There is no message for the event: its payload is nothing that JSON can say."""


def entries_of(event: Event, *, private: bool, most_bytes: int) -> Entries | NoMessageError:
    """None at all for an event that browsers do not see."""
    channels = channels_of(event.name, event.payload)
    try:
        data = message_of(event.payload, most_bytes) if channels else ""
    except (ValueError, TypeError, RecursionError):
        return NoMessageError("The event's payload cannot be written as JSON")
    return tuple(Entry(channel.name(private=private), event.name, data) for channel in channels)


def in_batches(events: Sequence[Entries]) -> Generator[Sequence[Entries]]:
    """In their order; no event is torn apart, so that it is known which ones are out."""
    batch: list[Entries] = []
    for entries in events:
        if batch and sum(map(len, batch)) + len(entries) > MOST_ENTRIES:
            yield batch
            batch = []
        batch.append(entries)
    if batch:
        yield batch
