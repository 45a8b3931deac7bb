"""Which settings enable realtime. With incomplete settings, events stay queued."""

import asyncio
from typing import cast

import pytest
from pydantic import SecretStr

from automation_pipeline.automation.ports import PublishResult
from automation_pipeline.bootstrap import Services
from automation_pipeline.clients.pusher import PusherChannels
from automation_pipeline.core.errors import PermanentError, TransientError
from automation_pipeline.core.settings import Settings
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.simulator_control import PUSHER_APP_ID, PUSHER_KEY, PUSHER_SECRET
from automation_pipeline_tests.storage.processes import event

PUSHER_SETTINGS = {
    "pusher_app_id": PUSHER_APP_ID,
    "pusher_key": PUSHER_KEY,
    "pusher_secret": SecretStr(PUSHER_SECRET),
    "pusher_cluster": "eu",
}


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*PUSHER_SETTINGS, "pusher_base_url", "next_public_pusher_key"):
        monkeypatch.delenv(name.upper(), raising=False)


def services(**settings: object) -> Services:
    return Services(Settings().model_copy(update=settings))


def test_realtime_is_disabled_without_pusher_settings() -> None:
    assert services().realtime is None
    assert services().delivery_services.publisher is None


def test_the_relay_publishes_through_a_configured_pusher(simulator_url: str) -> None:
    configured = services(**PUSHER_SETTINGS, pusher_base_url=simulator_url)
    assert configured.realtime is not None
    assert configured.delivery_services.publisher is configured.realtime
    asyncio.run(configured.realtime.check())
    assert asyncio.run(configured.realtime.publish([event("a")])) == PublishResult(1)
    assert configured.meter.drain()["provider_calls_total", 'provider="pusher",status="200"'] == 2


def test_without_a_base_url_the_cluster_is_called_over_tls() -> None:
    library = cast("PusherChannels", services(**PUSHER_SETTINGS).realtime)._library._pusher_client
    assert (library.scheme, library.host, library.port) == ("https", "api-eu.pusher.com", 443)


@every_case("missing", PUSHER_SETTINGS)
def test_incomplete_settings_are_named_and_events_stay_queued(missing: str) -> None:
    configured = services(**{**PUSHER_SETTINGS, missing: None})
    with pytest.raises(PermanentError, match=f": {missing.upper()} not set"):
        _ = configured.realtime
    publisher = configured.delivery_services.publisher
    assert publisher is not None
    waiting = asyncio.run(publisher.publish([event("a")]))
    assert (waiting.out, type(waiting.stopped)) == (0, TransientError)
    assert asyncio.run(publisher.publish([])) == PublishResult(0)


def test_a_pusher_base_url_with_a_path_is_refused() -> None:
    with pytest.raises(PermanentError, match="PUSHER_BASE_URL"):
        _ = services(**PUSHER_SETTINGS, pusher_base_url="https://pusher.example.test/apps").realtime
