"""What the CRM may say: the agreed values, their places when they are not as agreed, and anything at all."""

import json
from typing import Any

import httpx
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from automation_pipeline.clients.crm import CrmAnswerError, CrmUnavailableError
from automation_pipeline.clients.crm_payloads import without_nul
from automation_pipeline_tests.clients.gateway import FICHE, GOOD, INFORMATION, RECORDING, answering, saying


@pytest.mark.parametrize(
    ("unlike", "where"),
    [
        ({"message": None}, "message"),
        ({"information": {**INFORMATION, "groupe": 7}}, "information.groupe"),
        ({"prospect": []}, "prospect"),
        ({"recordings": None}, "recordings"),
        ({"recordings": [{**RECORDING, "call_id": ""}]}, "recordings.0.call_id"),
        ({"recordings": [RECORDING, {**RECORDING, "answered": "yes"}]}, "recordings.1.answered"),
        ({"recordings": [{**RECORDING, "start_time": "03/02/2026"}]}, "recordings.0.start_time"),
        ({"recordings": [{**RECORDING, "start_time": "2026-02-03T09:14:05"}]}, "recordings.0.start_time"),
        ({"recordings": [{**RECORDING, "start_time": "0001-01-01T00:00:00+14:00"}]}, "recordings.0.start_time"),
        ({"recordings": [{**RECORDING, "duration_seconds": 10**30}]}, "recordings.0.duration_seconds"),
        ({"recordings": [{**RECORDING, "duration_seconds": -1}]}, "recordings.0.duration_seconds"),
        ({"recordings": [{**RECORDING, "duration_seconds": float("nan")}]}, "recordings.0.duration_seconds"),
    ],
)
def test_a_value_that_is_not_as_agreed_is_named_with_its_place(unlike: dict[str, object], where: str) -> None:
    met = saying(GOOD | unlike).error()
    assert type(met) is CrmAnswerError
    assert str(met) == f"The CRM's answer for fiche {FICHE} has an unexpected value at {where}."


def test_parts_of_seconds_are_rounded() -> None:
    gateway = saying(GOOD | {"recordings": [{**RECORDING, "duration_seconds": 741.6}]})
    assert gateway.details().recordings[0].duration_seconds == 742


def test_sections_that_nobody_reads_yet_are_kept() -> None:
    gateway = saying(GOOD | {"conjoint": {"nom": "É"}, "documents": [1, None]})
    payload = gateway.details().payload
    assert (payload["conjoint"], payload["documents"]) == ({"nom": "É"}, [1, None])


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a\0b", "ab"),
        ("\0\0", ""),
        ("\\\0", "\\"),
        ("\\u0000", "\\u0000"),
        ("\\\\u0000", "\\\\u0000"),
        ("\\\\\0", "\\\\"),
    ],
)
def test_the_character_nul_which_postgresql_cannot_keep_is_left_out(text: str, kept: str) -> None:
    assert json.loads(without_nul(json.dumps({text: [text]}).encode())) == {kept: [kept]}


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
documents = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=8
)


def spoilt(good: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """The good document with anything at all in the place of one field, or beside them."""
    return st.tuples(st.sampled_from([*good, "unknown"]), documents).map(lambda change: good | dict([change]))


answers = (
    documents
    | spoilt(GOOD)
    | spoilt(INFORMATION).map(lambda information: GOOD | {"information": information})
    | spoilt(RECORDING).map(lambda recording: GOOD | {"recordings": [RECORDING, recording]})
)


@settings(max_examples=200, deadline=None)
@given(answers)
@example(GOOD)
@example(GOOD | {"unknown": [float("nan"), float("inf"), "\0"]})
def test_any_json_document_is_details_or_a_named_error(document: object) -> None:
    check_that_it_is_understood(json.dumps(document).encode())


@settings(max_examples=100, deadline=None)
@given(st.binary() | st.text().map(str.encode))
@example(b"[" * 100_000)
@example(b"\xff\xfe")
def test_any_bytes_are_details_or_a_named_error(body: bytes) -> None:
    check_that_it_is_understood(body)


def check_that_it_is_understood(body: bytes) -> None:
    try:
        details = answering(lambda _: httpx.Response(200, content=body)).details()
    except (CrmAnswerError, CrmUnavailableError) as error:
        complaint = str(error)
    else:
        assert details.fiche_id == FICHE
        json.dumps(details.payload, allow_nan=False)
        return
    assert complaint.startswith("The CRM")
