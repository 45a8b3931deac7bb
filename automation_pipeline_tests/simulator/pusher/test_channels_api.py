"""The simulated Pusher publishes the events of signed calls within the limits, and refuses all other calls with a
reason."""

import hashlib
import hmac
import json
import time
from typing import Any

import httpx

from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.simulator_control import (
    NO_CERTIFICATES,
    PUSHER_APP_ID,
    PUSHER_KEY,
    PUSHER_SECRET,
    add_faults,
)
from automation_pipeline_tests.simulator_control import published_events as shown

EVENTS, BATCH = f"/apps/{PUSHER_APP_ID}/events", f"/apps/{PUSHER_APP_ID}/batch_events"


def make_event(**fields: Any) -> dict[str, Any]:
    return {"name": "audit.started", "channel": "private-fiche-1", "data": "{}", **fields}


def signed(
    method: str, path: str, body: bytes, secret: str = PUSHER_SECRET, **changed: str
) -> dict[str, str]:
    """Sign a call as the protocol documentation describes."""
    query = {
        "auth_key": PUSHER_KEY,
        "auth_timestamp": str(int(time.time())),
        "auth_version": "1.0",
        "body_md5": hashlib.md5(body, usedforsecurity=False).hexdigest(),
    } | {name: value for name, value in changed.items() if name != "auth_signature"}
    signed_text = "\n".join(
        [method, path, "&".join(f"{name}={query[name]}" for name in sorted(query))]
    )
    signature = hmac.new(secret.encode(), signed_text.encode(), hashlib.sha256).hexdigest()
    return {**query, "auth_signature": changed.get("auth_signature", signature)}


def post(url: str, path: str, posted: object, **changed: str) -> httpx.Response:
    body = json.dumps(posted).encode()
    return httpx.post(
        f"{url}{path}",
        params=signed("POST", path, body, **changed),
        content=body,
        verify=NO_CERTIFICATES,
    )


def test_events_are_listed_in_the_order_in_which_they_were_published(simulator_url: str) -> None:
    assert (
        post(simulator_url, EVENTS, {**make_event(data="1"), "channels": ["a", "b"]}).json() == {}
    )
    assert (
        post(
            simulator_url, BATCH, {"batch": [make_event(data="2"), make_event(data="3", name="x")]}
        ).status_code
        == 200
    )
    assert [
        (event["number"], event["channels"], event["data"]) for event in shown(simulator_url)
    ] == [
        (1, ["a", "b"], "1"),
        (2, ["private-fiche-1"], "2"),
        (3, ["private-fiche-1"], "3"),
    ]
    assert [event["data"] for event in shown(simulator_url, channel="b")] == ["1"]
    assert [event["data"] for event in shown(simulator_url, name="x", after="1")] == ["3"]
    assert httpx.delete(f"{simulator_url}/_sim/pusher", verify=NO_CERTIFICATES).json() == {
        "published": 0
    }
    assert shown(simulator_url) == []


@every_case(
    "changed",
    [
        {"secret": "another secret"},
        {"auth_key": "another key"},
        {"auth_version": "2.0"},
        {"auth_timestamp": "1"},
        {"auth_timestamp": "soon"},
        {"auth_signature": ""},
        {"auth_signature": "é"},
        {"body_md5": "0" * 32},
    ],
)
def test_a_call_without_the_signature_of_the_application_is_refused(
    simulator_url: str, changed: dict[str, str]
) -> None:
    answer = post(simulator_url, EVENTS, make_event(), **changed)
    assert (answer.status_code, shown(simulator_url)) == (401, [])
    assert PUSHER_SECRET not in answer.text


def test_a_signature_is_valid_for_one_path_method_and_body(simulator_url: str) -> None:
    body = json.dumps(make_event()).encode()
    query = signed("POST", EVENTS, body)
    statuses = [
        httpx.post(
            f"{simulator_url}{BATCH}", params=query, content=body, verify=NO_CERTIFICATES
        ).status_code,
        httpx.post(
            f"{simulator_url}{EVENTS}", params=query, content=body + b" ", verify=NO_CERTIFICATES
        ).status_code,
        httpx.post(
            f"{simulator_url}{EVENTS}",
            params={**query, "info": "x"},
            content=body,
            verify=NO_CERTIFICATES,
        ),
        httpx.post(
            f"{simulator_url}/apps/1/events", params=query, content=body, verify=NO_CERTIFICATES
        ).status_code,
        httpx.post(
            f"{simulator_url}{EVENTS}", params=query, content=body, verify=NO_CERTIFICATES
        ).status_code,
    ]
    assert [getattr(status, "status_code", status) for status in statuses] == [
        401,
        401,
        401,
        404,
        200,
    ]


@every_case(
    ("path", "posted", "status"),
    [
        (EVENTS, make_event(data="x" * 10_241), 413),
        (EVENTS, make_event(data="é" * 5_121), 413),
        (EVENTS, make_event(data={"a": 1}), 400),
        (EVENTS, make_event(name=""), 400),
        (EVENTS, make_event(name="n" * 201), 400),
        (EVENTS, make_event(channel="private fiche"), 400),
        (EVENTS, make_event(channels=["a"] * 101), 400),
        (EVENTS, make_event(channels=[]), 400),
        (EVENTS, [], 400),
        (BATCH, {"batch": [make_event()] * 11}, 400),
        (BATCH, {"batch": [make_event(), make_event(data="x" * 10_241)]}, 413),
        (BATCH, {"batch": [make_event(), 5]}, 400),
        (BATCH, {}, 400),
    ],
)
def test_a_call_above_the_limits_publishes_nothing(
    simulator_url: str, path: str, posted: object, status: int
) -> None:
    answer = post(simulator_url, path, posted)
    assert (answer.status_code, shown(simulator_url)) == (status, [])
    assert set(answer.json()) == {"error"}


def test_a_call_at_the_limits_is_accepted(simulator_url: str) -> None:
    assert (
        post(simulator_url, EVENTS, make_event(data="x" * 10_240, channels=["a"] * 100)).status_code
        == 200
    )
    assert post(simulator_url, BATCH, {"batch": [make_event()] * 10}).status_code == 200


def test_a_signed_call_lists_the_channels(simulator_url: str) -> None:
    path = f"/apps/{PUSHER_APP_ID}/channels"
    answer = httpx.get(
        f"{simulator_url}{path}", params=signed("GET", path, b""), verify=NO_CERTIFICATES
    )
    assert answer.json() == {"channels": {}}
    assert httpx.get(f"{simulator_url}{path}", verify=NO_CERTIFICATES).status_code == 401


def test_faults_apply_by_channel_and_publish_nothing(simulator_url: str) -> None:
    add_faults(
        simulator_url,
        {"route": "pusher.event", "item": "private-fiche-2", "status": 503, "retry_after": 3},
    )
    answers = [
        post(simulator_url, EVENTS, make_event(channel=f"private-fiche-{number}"))
        for number in (1, 2)
    ]
    assert [answer.status_code for answer in answers] == [200, 503]
    assert answers[1].headers["retry-after"] == "3"
    assert len(shown(simulator_url)) == 1
