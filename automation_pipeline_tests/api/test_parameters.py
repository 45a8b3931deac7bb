"""Pagination of lists."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter, ValidationError

from automation_pipeline.api.parameters import (
    After,
    AfterId,
    BackfillFilter,
    FicheInPath,
    HostFilter,
    IdInPath,
    Limit,
    NameFilter,
    OccurrenceCount,
    Offset,
    OrgFilter,
    OrgScheduleFilter,
    Pagination,
    ServerFilter,
    day_parameters,
    pagination,
    query_parameters,
)
from automation_pipeline.api.responses import answer, answer_with, following, listed
from automation_pipeline.core.json_model import JsonModel
from automation_pipeline.org_jobs.rules.schedules import MOST_RUNS
from automation_pipeline_tests.cases import every_case


@given(st.integers(0, 10_000), st.integers(1, 500), st.integers(0, 12_000))
def test_pagination_has_correct_page_numbers_and_neighbours(
    total: int, limit: int, offset: int
) -> None:
    page = Pagination.model_validate(pagination(total, limit, offset))
    assert page.has_next_page == (len(range(total)[offset + limit :]) > 0)
    assert page.has_prev_page == (offset > 0)
    assert (page.total, page.limit, page.offset) == (total, limit, offset)
    assert page.current_page == len(range(0, offset + 1, limit))
    assert page.total_pages == max(1, len(range(0, total, limit)))
    if offset % limit == 0 and offset < total:
        assert 1 <= page.current_page <= page.total_pages
        assert page.has_next_page == (page.current_page < page.total_pages)


INVALID = object()
UUID = "6f1c2f7e-4a38-4c0b-9d53-0a4f6d3f8b21"


@every_case(
    ("kind", "given", "parsed"),
    [
        *((IdInPath, str(number), number) for number in (1, 10, 2**63 - 1)),
        *((IdInPath, text, INVALID) for text in ("0", "01", "+1", "1\n", "x", "", str(2**63))),
        *((FicheInPath, text, text) for text in ("0", "1" * 32)),
        *((FicheInPath, text, INVALID) for text in ("", "1" * 33, "x")),
        *((Limit, text, int(text)) for text in ("1", "1000")),
        *((Limit, text, INVALID) for text in ("0", "1001", "x")),
        *((Offset, text, int(text)) for text in ("0", "1000000000")),
        *((Offset, text, INVALID) for text in ("-1", "1000000001")),
        *((AfterId, text, int(text)) for text in ("0", str(2**63 - 1))),
        *((AfterId, text, INVALID) for text in ("-1", str(2**63))),
        *((OccurrenceCount, str(count), count) for count in (1, MOST_RUNS)),
        *((OccurrenceCount, str(count), INVALID) for count in (0, MOST_RUNS + 1)),
        *((ServerFilter, str(number), number) for number in (1, 2**63 - 1)),
        *((ServerFilter, str(number), INVALID) for number in (0, 2**63)),
        *((BackfillFilter, str(number), number) for number in (1, 2**63 - 1)),
        *((BackfillFilter, str(number), INVALID) for number in (0, 2**63)),
        *((HostFilter, str(number), number) for number in (1, 2**63 - 1)),
        *((HostFilter, str(number), INVALID) for number in (0, 2**63)),
        (NameFilter, "x" * 200, "x" * 200),
        (NameFilter, "x" * 201, INVALID),
        *((OrgFilter, text, text) for text in ("acme", "a-1", "a" * 40)),
        *((OrgFilter, text, INVALID) for text in ("a" * 41, "Acme", "-a", "a--b")),
        (OrgScheduleFilter, UUID.upper(), UUID),
        *((OrgScheduleFilter, text, INVALID) for text in (UUID[:-1], f"{UUID}0", f"{UUID}\n")),
        (After, "1970-01-01T00:00:00", datetime(1970, 1, 1, tzinfo=UTC)),
        (After, "2200-12-31T12:00:00+02:00", datetime(2200, 12, 31, 10, tzinfo=UTC)),
        *((After, f"{year}-06-01T00:00:00Z", INVALID) for year in (1969, 2201)),
    ],
)
def test_parameters_accept_values_up_to_their_limits(
    kind: object, given: str, parsed: object
) -> None:
    adapter: TypeAdapter[object] = TypeAdapter(kind)
    if parsed is INVALID:
        with pytest.raises(ValidationError):
            adapter.validate_python(given)
        return
    assert adapter.validate_python(given) == parsed


class Item(JsonModel):
    long_name: str


def test_responses_have_an_envelope() -> None:
    item, document = Item(long_name="x"), {"longName": "x"}
    cases = [
        (answer(item), 200, {"success": True, "data": document}),
        (answer([item]), 200, {"success": True, "data": [document]}),
        (answer((item, {"a": 1})), 200, {"success": True, "data": [document, {"a": 1}]}),
        (answer(None, status=201, count=2), 201, {"success": True, "data": None, "count": 2}),
        (answer_with(202, run_id="1"), 202, {"success": True, "run_id": "1"}),
        (answer_with(a=1), 200, {"success": True, "a": 1}),
        (following([item], 5), 200, {"success": True, "data": [document], "count": 1, "limit": 5}),
        (
            listed([item, item], 5, 7),
            200,
            {"success": True, "data": [document] * 2, "count": 2, "limit": 5, "offset": 7},
        ),
    ]
    for response, status, expected in cases:
        assert (response.status_code, json.loads(bytes(response.body))) == (status, expected)
    assert (
        answer(None, headers={"Cache-Control": "no-store"}).headers["cache-control"] == "no-store"
    )


class Filters(BaseModel):
    day: str
    limit: int = 5


def test_query_parameters_are_described_from_a_model_and_days() -> None:
    described = query_parameters(Filters)["parameters"]
    assert [
        (one["name"], one["in"], one["required"], one["allowEmptyValue"]) for one in described
    ] == [
        ("day", "query", True, True),
        ("limit", "query", False, True),
    ]
    assert described[1]["schema"]["type"] == "integer"
    [day] = day_parameters(date="The day.")["parameters"]
    assert (day["name"], day["required"], day["schema"]) == (
        "date",
        True,
        {"type": "string", "format": "date"},
    )
    assert day["description"] == "The day. From 1900 to 2199."
