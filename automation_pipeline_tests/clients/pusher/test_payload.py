"""Payloads that fit the size limit: complete, reduced to identifiers, or only a truncated flag."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.clients.pusher import KEPT, message_of
from automation_pipeline_tests.cases import every_case

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)
PAYLOADS = st.dictionaries(st.sampled_from([*KEPT, "datesFailed", "text"]) | st.text(), ANYTHING)


def read(payload: object, max_bytes: int = 1000) -> Any:
    return json.loads(message_of(payload, max_bytes))


def test_a_small_payload_is_sent_unchanged() -> None:
    assert message_of({"fiche_id": "1", "prénom": "Zoé"}, 1000) == '{"fiche_id":"1","prénom":"Zoé"}'


def test_an_oversized_payload_keeps_identifiers_and_replaces_date_lists_by_counts() -> None:
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


def test_a_payload_still_too_large_contains_only_the_truncated_flag() -> None:
    assert read({"status": "x" * 2000}) == {"truncated": True}


@every_case("payload", ["text", 5, None, [1, 2], True])
def test_a_non_object_payload_is_wrapped(payload: object) -> None:
    assert read(payload) == {"value": payload}


def test_size_limits_count_encoded_bytes() -> None:
    around = len('{"value":""}')
    assert read("é" * ((1000 - around) // 2)) != {"truncated": True}
    assert read("é" * ((1000 - around) // 2 + 1)) == {"truncated": True}


@every_case("payload", [{"a": float("nan")}, {"a": float("inf")}, {"a": object()}])
def test_a_payload_not_representable_in_json_is_an_error(payload: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        message_of(payload, 1000)


@given(ANYTHING | PAYLOADS, st.integers(20, 2000))
def test_every_message_fits_the_limit_and_contains_only_payload_fields(
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
