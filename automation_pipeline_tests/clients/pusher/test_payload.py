"""Messages fit: whole, or cut down to what identifies them, or to nothing but that they were
cut."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.clients.pusher import KEPT, message_of
from automation_pipeline_tests.tables import every_case

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)
PAYLOADS = st.dictionaries(st.sampled_from([*KEPT, "datesFailed", "text"]) | st.text(), ANYTHING)


def read(payload: object, max_bytes: int = 1000) -> Any:
    return json.loads(message_of(payload, max_bytes))


def test_a_small_payload_goes_as_it_is() -> None:
    assert message_of({"fiche_id": "1", "prénom": "Zoé"}, 1000) == '{"fiche_id":"1","prénom":"Zoé"}'


def test_a_big_one_keeps_what_identifies_it_and_counts_its_days() -> None:
    payload = {
        "jobId": "j",
        "status": "processing",
        "datesCompleted": ["2026-01-01"] * 40,
        "datesRemaining": [],
        "datesFailed": "none",
        "text": "x" * 2000,
    }
    assert read(payload) == {
        "jobId": "j",
        "status": "processing",
        "datesCompletedCount": 40,
        "datesRemainingCount": 0,
        "truncated": True,
    }


def test_what_is_still_too_big_says_only_that() -> None:
    assert read({"status": "x" * 2000}) == {"truncated": True}


@every_case("payload", ["text", 5, None, [1, 2], True])
def test_what_is_no_object_is_wrapped(payload: object) -> None:
    assert read(payload) == {"value": payload}


def test_sizes_are_counted_in_bytes_as_they_are_sent() -> None:
    around = len('{"value":""}')
    assert read("é" * ((1000 - around) // 2)) != {"truncated": True}
    assert read("é" * ((1000 - around) // 2 + 1)) == {"truncated": True}


@every_case("payload", [{"a": float("nan")}, {"a": float("inf")}, {"a": object()}])
def test_what_json_cannot_say_is_an_error(payload: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        message_of(payload, 1000)


@given(ANYTHING | PAYLOADS, st.integers(20, 2000))
def test_every_message_fits_and_is_the_payload_or_a_part_of_it(
    payload: object, max_bytes: int
) -> None:
    message = message_of(payload, max_bytes)
    assert len(message.encode()) <= max_bytes
    document = json.loads(message)
    if (
        isinstance(payload, dict)
        and document.pop("truncated", None) is not None
        and "truncated" not in payload
    ):
        assert set(document) <= {*KEPT, "datesFailedCount"}
