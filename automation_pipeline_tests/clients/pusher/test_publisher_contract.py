"""The EventPublisher contract, on the fake and on the Pusher adapter."""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from automation_pipeline.automation.ports import EventPublisher, PublishResult
from automation_pipeline.core.errors import AutomationError, PermanentError, TransientError
from automation_pipeline.core.events import Event
from automation_pipeline_tests.clients.pusher.pusher_client import channels
from automation_pipeline_tests.fakes.senders import FakePublisher
from automation_pipeline_tests.simulator_control import add_faults, published_events, reset
from automation_pipeline_tests.storage.processes import event


@dataclass(frozen=True)
class Provider:
    publisher: EventPublisher
    published: Callable[[], list[str]]
    start_outage: Callable[[], None]
    end_outage: Callable[[], None]
    poison: Callable[[str], Event]

    def publish(self, events: Sequence[Event]) -> PublishResult:
        return asyncio.run(self.publisher.publish(events))


def fake() -> Provider:
    publisher = FakePublisher()

    def set_outage(outage: TransientError | None) -> None:
        publisher.outage = outage

    def poison(key: str) -> Event:
        publisher.refused = {**publisher.refused, key: PermanentError("refused")}
        return event(key)

    return Provider(
        publisher, lambda: publisher.published, lambda: set_outage(TransientError("away")), lambda: set_outage(None),
        poison,
    )  # fmt: skip


def pusher(url: str) -> Provider:
    def published() -> list[str]:
        return [json.loads(shown["data"])["key"] for shown in published_events(url)]

    def poison(key: str) -> Event:
        """An event name that Pusher rejects as too long."""
        valid = event(key)
        return Event(
            valid.tenant_id,
            key,
            "n" * 201,
            "test",
            valid.correlation_id,
            valid.occurred_at,
            valid.payload,
        )

    def start_outage() -> None:
        add_faults(url, {"route": "pusher.batch", "status": 503})

    return Provider(channels(url), published, start_outage, lambda: clear_faults(url), poison)


def clear_faults(url: str) -> None:
    kept = published_events(url)
    assert kept == []  # removing the faults also clears the record of published events
    reset(url)


@pytest.fixture(params=["fake", "pusher"])
def provider(request: pytest.FixtureRequest) -> Provider:
    return fake() if request.param == "fake" else pusher(request.getfixturevalue("simulator_url"))


def test_events_are_published_in_order(provider: Provider) -> None:
    keys = [f"event {number}" for number in range(37)]
    assert provider.publish([event(key) for key in keys]) == PublishResult(37)
    assert provider.published() == keys


def test_publishing_no_events_publishes_nothing(provider: Provider) -> None:
    assert provider.publish([]) == PublishResult(0)
    assert provider.published() == []


def test_an_outage_is_transient_and_a_retry_publishes_all_events(provider: Provider) -> None:
    events = [event(f"event {number}") for number in range(12)]
    provider.start_outage()
    result = provider.publish(events)
    assert (result.out, provider.published()) == (0, [])
    assert isinstance(result.stopped, TransientError)
    provider.end_outage()
    assert provider.publish(events) == PublishResult(12)
    assert provider.published() == [f"event {number}" for number in range(12)]


@pytest.mark.parametrize("position", [0, 3, 11, 24])
def test_a_refused_event_is_reported_by_position_after_earlier_events_are_published(
    provider: Provider, position: int
) -> None:
    events = [event(f"event {number}") for number in range(25)]
    events[position] = provider.poison("poison")
    stopped = provider.publish(events)
    assert stopped.out == position
    assert isinstance(stopped.stopped, AutomationError)
    assert not isinstance(stopped.stopped, TransientError)
    assert provider.published() == [f"event {number}" for number in range(position)]
    assert provider.publish(events[position + 1 :]) == PublishResult(24 - position)
    assert provider.published() == [f"event {number}" for number in range(25) if number != position]
