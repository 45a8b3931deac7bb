"""The Pusher adapter against the simulated Pusher: signatures, errors, channel authentication, secrets."""

import asyncio
import hashlib
import hmac
import json
import logging
import time
from typing import Any

import pytest

from automation_pipeline.automation.ports import ChannelMember, PublishResult
from automation_pipeline.core.errors import (
    AutomationError,
    InvalidInputError,
    PermanentError,
    TransientError,
)
from automation_pipeline.core.metrics import Meter
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.clients.pusher.pusher_client import channels
from automation_pipeline_tests.services import free_port
from automation_pipeline_tests.simulator_control import (
    PUSHER_KEY,
    PUSHER_SECRET,
    add_faults,
    published_events,
)
from automation_pipeline_tests.storage.processes import event

ANNA = ChannelMember("user:7", {"name": "Anna"})


def publish_error(url: str, **how: Any) -> Exception | None:
    return asyncio.run(channels(url, **how).publish([event("a"), event("b")])).stopped


def test_an_event_reaches_each_of_its_channels_with_its_payload(simulator_url: str) -> None:
    sent = event("k", audit_id="a:1", fiche_id="7", text="é" * 100)
    assert asyncio.run(channels(simulator_url).publish([sent])) == PublishResult(1)
    shown = published_events(simulator_url)
    assert [event["channels"] for event in shown] == [["private-audit-a_1"], ["private-fiche-7"]]
    assert {event["name"] for event in shown} == {"run.completed"}
    assert [json.loads(event["data"]) for event in shown] == [dict(sent.payload)] * 2


def test_without_private_channels_names_have_no_prefix(simulator_url: str) -> None:
    asyncio.run(channels(simulator_url, private=False).publish([event("k", fiche_id="7")]))
    assert [event["channels"] for event in published_events(simulator_url)] == [["fiche-7"]]


def test_an_oversized_event_is_truncated_and_published(simulator_url: str) -> None:
    events = [
        event("emoji", fiche_id="7", text="🎧" * 2_200),
        event("big", fiche_id="8", text="é" * 5_000),
    ]
    assert asyncio.run(channels(simulator_url).publish(events)) == PublishResult(2)
    whole, cut = [json.loads(event["data"]) for event in published_events(simulator_url)]
    assert (whole["text"], cut) == ("🎧" * 2_200, {"fiche_id": "8", "truncated": True})


def test_internal_events_are_skipped_and_do_not_block_other_events(simulator_url: str) -> None:
    internal = event("i")
    object.__setattr__(internal, "name", "automation/completed")
    assert asyncio.run(
        channels(simulator_url).publish([internal, event("a"), internal])
    ) == PublishResult(3)
    assert len(published_events(simulator_url)) == 1


def test_an_unserialisable_payload_is_reported_after_earlier_events_are_published(
    simulator_url: str,
) -> None:
    published = asyncio.run(
        channels(simulator_url).publish([event("a"), event("b", x=float("nan")), event("c")])
    )
    assert (published.out, type(published.stopped)) == (1, PermanentError)
    assert len(published_events(simulator_url)) == 1


@pytest.mark.parametrize(
    ("rule", "kind", "message"),
    [
        ({"status": 401}, TransientError, "check PUSHER_KEY, PUSHER_SECRET"),
        ({"status": 403}, TransientError, "over its quota"),
        ({"status": 404}, TransientError, "check PUSHER_APP_ID"),
        ({"status": 402}, TransientError, "its plan"),
        ({"status": 407}, TransientError, "proxy"),
        ({"status": 408}, TransientError, "answered 408"),
        ({"status": 425}, TransientError, "answered 425"),
        ({"status": 422}, PermanentError, "refused the event (422)"),
        ({"status": 429, "retry_after": 9}, TransientError, "answered 429"),
        ({"status": 500}, TransientError, "answered 500"),
        ({"status": 307}, TransientError, "answered 307"),
        ({"status": 400}, PermanentError, "refused the event (400)"),
        ({"status": 413}, PermanentError, "refused the event (413)"),
        ({"drop": True}, TransientError, "could not be reached"),
        ({"body": "cut_short"}, TransientError, "could not be reached"),
    ],
)
def test_each_pusher_failure_is_classified_as_transient_or_permanent(
    simulator_url: str, rule: dict[str, Any], kind: type[Exception], message: str
) -> None:
    add_faults(simulator_url, {"route": "pusher.batch", **rule})
    error = publish_error(simulator_url)
    assert isinstance(error, kind)
    assert message in str(error)
    assert isinstance(error, TransientError) is (kind is TransientError)
    if "retry_after" in rule:
        assert getattr(error, "retry_after_seconds", None) == 9


@pytest.mark.parametrize(
    "rule",
    [
        {"hang": True},
        {"body": "stalled"},
        {"trickle_seconds": 60},
        {"status": 503, "trickle_seconds": 6},
    ],
)
def test_a_missing_response_times_out(simulator_url: str, rule: dict[str, Any]) -> None:
    add_faults(simulator_url, {"route": "pusher.batch", **rule})
    started_at = time.monotonic()
    assert isinstance(publish_error(simulator_url, seconds=0.3), TransientError)
    assert time.monotonic() - started_at < 5


@pytest.mark.parametrize(
    ("rule", "status"),
    [
        ({"status": 200}, "200"),
        ({"status": 503}, "503"),
        ({"drop": True}, "ConnectionError"),
        ({"hang": True}, None),
    ],
)
def test_each_call_is_counted_by_response_status(
    simulator_url: str, rule: dict[str, Any], status: str | None
) -> None:
    add_faults(simulator_url, {"route": "pusher.batch", **rule})
    meter = Meter()
    publish_error(simulator_url, seconds=0.3, meter=meter)
    counted = meter.drain()
    assert counted.pop(("provider_call_seconds_total", 'provider="pusher"')) > 0
    [((name, labels), calls)] = counted.items()
    assert (name, calls) == ("provider_calls_total", 1)
    assert 'provider="pusher",status="' in labels
    assert status is None or f'status="{status}"' in labels


def test_an_unreadable_success_response_counts_as_published(simulator_url: str) -> None:
    add_faults(simulator_url, {"route": "pusher.batch", "body": "not_json"})
    assert publish_error(simulator_url) is None


def test_a_wrong_secret_is_refused_and_no_error_or_log_contains_secrets(
    simulator_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        errors = [
            publish_error(simulator_url, secret="wrong-secret"),
            publish_error(simulator_url, app_id="11"),
            publish_error(f"http://127.0.0.1:{free_port()}"),
        ]
    assert all(isinstance(error, TransientError) for error in errors)
    assert published_events(simulator_url) == []
    for error in errors:
        assert error is not None
        texts = [str(error), repr(error), str(error.__cause__), str(error.__context__)]
        assert not [
            text for text in texts if "secret" in text.lower() and "PUSHER_SECRET" not in text
        ]
        assert "auth_signature" not in "".join(texts)
    assert "wrong-secret" not in caplog.text
    assert PUSHER_SECRET not in caplog.text


def test_the_check_verifies_app_id_key_and_secret(simulator_url: str) -> None:
    asyncio.run(channels(simulator_url).check())
    with pytest.raises(AutomationError, match="check PUSHER_KEY, PUSHER_SECRET"):
        asyncio.run(channels(simulator_url, secret="wrong").check())
    with pytest.raises(AutomationError, match="PUSHER_APP_ID"):
        asyncio.run(channels(simulator_url, app_id="11").check())
    with pytest.raises(PermanentError, match="must be a number"):
        channels(simulator_url, app_id="eleven")


def test_one_event_can_be_triggered(simulator_url: str) -> None:
    asyncio.run(channels(simulator_url).trigger("private-global", "test", [1, 2]))
    [shown] = published_events(simulator_url)
    assert (shown["channels"], shown["name"], shown["data"]) == (
        ["private-global"],
        "test",
        '{"value":[1,2]}',
    )


@pytest.mark.parametrize(
    ("channel", "name", "payload"),
    [
        ("no channel", "test", {}),
        ("a", "", {}),
        ("a", "n" * 201, {}),
        ("a", "n", {"x": float("nan")}),
    ],
)
def test_an_invalid_event_is_not_triggered(
    simulator_url: str, channel: str, name: str, payload: object
) -> None:
    with pytest.raises(PermanentError):
        asyncio.run(channels(simulator_url).trigger(channel, name, payload))
    assert published_events(simulator_url) == []


def test_a_dry_run_logs_channels_without_payloads(
    simulator_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        events = event("k", fiche_id="7", name_of_prospect="Zoé")
        assert asyncio.run(
            channels(simulator_url, dry_run=True).publish([events])
        ) == PublishResult(1)
    assert "run.completed to private-fiche-7" in caplog.text
    assert "Zoé" not in caplog.text
    assert published_events(simulator_url) == []


def signature(text: str) -> str:
    return f"{PUSHER_KEY}:{hmac.new(PUSHER_SECRET.encode(), text.encode(), hashlib.sha256).hexdigest()}"


def test_authentication_for_a_private_channel_is_bound_to_one_socket() -> None:
    authentication = channels("http://127.0.0.1").authenticate("private-fiche-7", "12.34", ANNA)
    assert authentication == {"auth": signature("12.34:private-fiche-7")}


def test_authentication_for_a_presence_channel_includes_the_member() -> None:
    authentication = channels("http://127.0.0.1").authenticate("presence-global", "12.34", ANNA)
    assert json.loads(authentication["channel_data"]) == {
        "user_id": "user:7",
        "user_info": {"name": "Anna"},
    }
    assert authentication["auth"] == signature(
        f"12.34:presence-global:{authentication['channel_data']}"
    )


@every_case(
    ("channel", "socket_id"),
    [
        ("private-fiche-7", ""),
        ("private-fiche-7", "12"),
        ("private-fiche-7", "1.2:private-global"),
        ("private-fiche-7", "1.2\n"),
        ("private-fiche-7", "١.٢"),
        ("private-fiche-7:x", "1.2"),
        ("#server-to-user-7", "1.2"),
        ("", "1.2"),
        ("a" * 201, "1.2"),
    ],
)
def test_an_ambiguous_channel_or_socket_id_is_not_signed(channel: str, socket_id: str) -> None:
    with pytest.raises(InvalidInputError):
        channels("http://127.0.0.1").authenticate(channel, socket_id, ANNA)
