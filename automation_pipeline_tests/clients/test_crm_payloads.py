"""Parsing of CRM documents: valid values, paths of invalid values, and arbitrary input."""

import json
from datetime import UTC, datetime
from typing import Any

import httpx
from hypothesis import example, given, settings
from hypothesis import strategies as st

from automation_pipeline.clients.crm import without_nul
from automation_pipeline.core.errors import PermanentError, TransientError
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.clients.crm_client import (
    FICHE,
    GOOD,
    INFORMATION,
    LIST,
    RECORDING,
    SALE,
    SOLD_ON,
    URL,
    crm_with_answer,
    crm_with_document,
)


@every_case(
    ("changed", "where"),
    [
        ({"message": None}, "message"),
        ({"information": {**INFORMATION, "groupe": 7}}, "information.groupe"),
        ({"prospect": []}, "prospect"),
        *[({array: None}, array) for array, value in GOOD.items() if isinstance(value, list)],
        *[({array: {}}, array) for array, value in GOOD.items() if isinstance(value, list)],
        ({"raw_sections": {"entete": 7}}, "raw_sections.entete"),
        ({"raw_sections": None}, "raw_sections"),
        ({"elements_souscription": []}, "elements_souscription"),
        ({"documents": [{}]}, "documents.0.document_id"),
        ({"recordings": [{**RECORDING, "call_id": "1" * 501}]}, "recordings.0.call_id"),
        ({"recordings": [{**RECORDING, "call_id": ""}]}, "recordings.0.call_id"),
        ({"recordings": [RECORDING, {**RECORDING, "answered": "yes"}]}, "recordings.1.answered"),
        ({"recordings": [{**RECORDING, "start_time": "03/02/2026"}]}, "recordings.0.start_time"),
        (
            {"recordings": [{**RECORDING, "start_time": "02/13/2026 10:12"}]},
            "recordings.0.start_time",
        ),
        ({"recordings": [{**RECORDING, "start_time": 1770110045}]}, "recordings.0.start_time"),
        (
            {"recordings": [{**RECORDING, "start_time": "0001-01-01T00:00:00+14:00"}]},
            "recordings.0.start_time",
        ),
        (
            {"recordings": [{**RECORDING, "duration_seconds": 10**30}]},
            "recordings.0.duration_seconds",
        ),
        ({"recordings": [{**RECORDING, "duration_seconds": -1}]}, "recordings.0.duration_seconds"),
        (
            {"recordings": [{**RECORDING, "duration_seconds": float("nan")}]},
            "recordings.0.duration_seconds",
        ),
    ],
)
def test_an_invalid_value_is_reported_with_its_path(changed: dict[str, object], where: str) -> None:
    raised = crm_with_document(GOOD | changed).error()
    assert type(raised) is PermanentError
    assert str(raised) == f"The CRM's answer for fiche {FICHE} has an unexpected value at {where}."


def test_fractional_durations_are_rounded() -> None:
    gateway = crm_with_document(GOOD | {"recordings": [{**RECORDING, "duration_seconds": 741.6}]})
    assert gateway.details().recordings[0].duration_seconds == 742


@every_case("array", [name for name, value in GOOD.items() if isinstance(value, list)])
def test_a_missing_array_is_a_permanent_error(array: str) -> None:
    raised = crm_with_document(
        {name: value for name, value in GOOD.items() if name != array}
    ).error()
    assert type(raised) is PermanentError
    assert str(raised).endswith(f"unexpected value at {array}.")


def test_the_start_time_is_parsed_day_first_in_paris_time() -> None:
    [call] = (
        crm_with_document(GOOD | {"recordings": [{**RECORDING, "start_time": "03/02/2026 10:14"}]})
        .details()
        .recordings
    )
    assert call.started_at == datetime(2026, 2, 3, 9, 14, tzinfo=UTC)


@every_case(
    ("sent", "url", "uuid"),
    [
        (URL, URL, "0a1b2c3d-1111-4222-8333-444455556666"),
        ("https://records.example.test/1.mp3", "https://records.example.test/1.mp3", None),
        (None, "", None),
        (" \n", "", None),
    ],
)
def test_the_recording_uuid_is_read_from_the_url(
    sent: str | None, url: str, uuid: str | None
) -> None:
    [call] = (
        crm_with_document(GOOD | {"recordings": [{**RECORDING, "recording_url": sent}]})
        .details()
        .recordings
    )
    assert (call.url, call.uuid) == (url, uuid)


def test_unknown_fields_are_kept() -> None:
    information = {**INFORMATION, "nouveau": 1}
    details = crm_with_document(
        GOOD | {"mail_devis": None, "avis": {"note": [5]}, "information": information}
    ).details()
    assert details.rest == {
        "mail_devis": None,
        "avis": {"note": [5]},
        "information": {"nouveau": 1},
    }
    assert crm_with_document(GOOD).details().rest == {}


@every_case(
    "document",
    [
        GOOD | {"success": False, "message": "Fiche verrouillée"},
        GOOD | {"success": False, "message": "Fiche verrouillée", "information": None},
        {"success": False, "message": "Fiche verrouillée"},
        {"success": False, "message": "Fiche verrouillée", "recordings": None},
        {"success": False, "message": "Fiche verrouillée", "fiches": [], "total": 0},
    ],
)
def test_a_refusal_is_recognised_regardless_of_its_other_fields(document: object) -> None:
    for raised in (crm_with_document(document).error(), crm_with_document(document).list_error()):
        assert type(raised) is PermanentError
        assert str(raised).endswith(": Fiche verrouillée")


@every_case(
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
def test_nul_characters_that_postgresql_rejects_are_removed(text: str, kept: str) -> None:
    assert json.loads(without_nul(json.dumps({text: [text]}).encode())) == {kept: [kept]}


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
documents = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


def mutated(good: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """The valid document with one field replaced or added by an arbitrary value."""
    return st.tuples(st.sampled_from([*good, "unknown"]), documents).map(
        lambda change: good | dict([change])
    )


def mutated_at_any_depth(good: Any) -> st.SearchStrategy[Any]:
    """The valid document with one value replaced at any depth."""
    if isinstance(good, dict):
        return st.sampled_from([*good, "unknown"]).flatmap(
            lambda key: mutated_at_any_depth(good.get(key)).map(lambda value: good | {key: value})
        )
    if isinstance(good, list) and good:
        return mutated_at_any_depth(good[0]).map(lambda value: [*good, value])
    return documents


@settings(max_examples=200, deadline=None)
@given(documents | mutated(GOOD) | mutated_at_any_depth(GOOD))
@example(GOOD)
@example(GOOD | {"unknown": [float("nan"), float("inf"), "\0"]})
@example(GOOD | {"information": {**INFORMATION, "nombre_acces": 10**400}})
def test_any_json_document_parses_as_details_or_raises_a_domain_error(document: object) -> None:
    check_details_response(json.dumps(document).encode())


@settings(max_examples=200, deadline=None)
@given(documents | mutated(LIST) | mutated_at_any_depth(LIST))
@example(LIST)
@example({"fiches": [{**SALE, "id": 10**4000}], "total": 1})
def test_any_json_document_parses_as_a_sales_list_or_raises_a_domain_error(
    document: object,
) -> None:
    check_sales_list_response(json.dumps(document).encode())


@settings(max_examples=100, deadline=None)
@given(st.binary() | st.text().map(str.encode))
@example(b"[" * 100_000)
@example(b"\xff\xfe")
def test_any_bytes_parse_or_raise_a_domain_error(body: bytes) -> None:
    check_details_response(body)
    check_sales_list_response(body)


def check_details_response(body: bytes) -> None:
    try:
        details = crm_with_answer(lambda _: httpx.Response(200, content=body)).details()
    except (PermanentError, TransientError) as error:
        message = str(error)
    else:
        assert details.fiche_id == FICHE
        json.dumps(details.rest, allow_nan=False)
        return
    assert message.startswith("The CRM")


def check_sales_list_response(body: bytes) -> None:
    try:
        sales = crm_with_answer(lambda _: httpx.Response(200, content=body)).sales_list()
    except (PermanentError, TransientError) as error:
        message = str(error)
    else:
        assert sales.day == SOLD_ON
        assert all(isinstance(fiche.fiche_id, str) and fiche.fiche_id for fiche in sales.fiches)
        assert sales.fiches or json.loads(body)["fiches"] == []
        return
    assert message.startswith("The CRM")
