"""The sales list of a day: the request, parsing, and errors for malformed lists."""

from datetime import UTC, datetime

import httpx
import pytest

from automation_pipeline.core.errors import (
    AutomationError,
    NotFoundError,
    PermanentError,
    TransientError,
)
from automation_pipeline.core.logs import correlated
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.clients.crm_client import (
    DAY,
    LIST,
    SALE,
    SOLD_ON,
    Crm,
    crm_with_answer,
    crm_with_document,
)
from automation_pipeline_tests.simulator_control import add_faults, call_count
from automation_pipeline_tests.waiting import wait_until

ITEM = SOLD_ON.isoformat()


@pytest.fixture
def gateway(simulator_url: str) -> Crm:
    return Crm(simulator_url)


def add_fault(gateway: Crm, **rule: object) -> None:
    add_faults(gateway.url, {"route": "crm.sales_list", **rule})


def test_the_sales_list_requests_one_day_with_recordings() -> None:
    requests: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(200, json=LIST)

    with correlated("request-7"):
        crm_with_answer(answer).sales_list()
    (request,) = requests
    assert request.url.path == "/api/fiches/sales-with-calls"
    assert request.headers["X-Request-Id"] == "request-7"
    assert request.extensions["timeout"] == {"connect": 10, "read": 60, "write": 60, "pool": 60}
    assert dict(request.url.params) == {
        "start_date": "2026-02-03",
        "end_date": "2026-02-03",
        "status_id": "53",
        "include_recordings": "true",
        "include_transcriptions": "false",
    }


def test_the_sales_list_contains_the_fiches_of_the_day(gateway: Crm) -> None:
    sales = gateway.sales_list()
    assert (sales.day, sales.listed, sales.duplicates) == (SOLD_ON, len(DAY), 0)
    result = [
        (f.fiche_id, f.cle, f.nom, f.prenom, f.telephone, f.telephone_2, f.email)
        for f in sales.fiches
    ]
    assert result == [
        (s.id, s.listed_cle, s.prospect.nom, s.prospect.prenom, s.prospect.telephone, s.prospect.telephone_2,
         s.prospect.email)
        for s in DAY
    ]  # fmt: skip
    assert [(f.inserted_at, f.modified_at) for f in sales.fiches] == [
        (s.inserted_at, s.modified_at) for s in DAY
    ]
    assert [[call.call_id for call in f.recordings] for f in sales.fiches] == [
        [call.call_id for call in s.recordings] for s in DAY
    ]
    assert call_count(gateway.url, ITEM, "crm.sales_list") == 1


def test_recordings_in_the_list_equal_those_in_the_details(gateway: Crm) -> None:
    sold = next(fiche for fiche in gateway.sales_list().fiches if fiche.recordings)
    assert sold.recordings == gateway.details(sold.fiche_id).recordings


def test_a_day_without_sales_is_an_empty_list() -> None:
    sales = crm_with_document({"fiches": [], "total": 0}).sales_list()
    assert (sales.listed, sales.fiches) == (0, ())


@every_case(
    ("names", "fiche_id"),
    [
        ({"id": "1"}, "1"),
        ({"id": 1}, "1"),
        ({"id": " 1 "}, "1"),
        ({"id": "1", "fiche_id": "2"}, "2"),
        ({"id": "1", "fiche_id": 2, "ficheId": "3"}, "3"),
        ({"id": "1", "fiche_id": None, "ficheId": ""}, "1"),
    ],
)
def test_the_fiche_id_is_the_first_id_field_present(
    names: dict[str, object], fiche_id: str
) -> None:
    sale = {name: value for name, value in SALE.items() if name != "id"}
    assert [
        f.fiche_id
        for f in crm_with_document({"fiches": [sale | names], "total": 1}).sales_list().fiches
    ] == [fiche_id]


@every_case(
    ("text", "instant"),
    [
        ("03/02/2026 10:12", datetime(2026, 2, 3, 9, 12, tzinfo=UTC)),
        ("2026-02-03T10:12:00Z", datetime(2026, 2, 3, 10, 12, tzinfo=UTC)),
        (None, None),
        ("", None),
        (" ", None),
    ],
)
def test_dates_may_be_blank(text: str | None, instant: datetime | None) -> None:
    sale = SALE | {"date_insertion": text, "date_modification": text}
    [fiche] = crm_with_document({"fiches": [sale], "total": 1}).sales_list().fiches
    assert (fiche.inserted_at, fiche.modified_at) == (instant, instant)


def test_a_duplicate_fiche_is_counted_and_its_first_entry_is_kept() -> None:
    twice = [SALE, SALE | {"id": "2"}, SALE | {"nom": "AUTRE"}]
    sales = crm_with_document({"fiches": twice, "total": 3}).sales_list()
    assert (sales.listed, sales.duplicates) == (3, 1)
    assert [fiche.nom for fiche in sales.fiches] == ["MARTEL", "MARTEL"]


@every_case("total", [0, 1])
def test_more_fiches_than_the_announced_total_are_accepted(total: int) -> None:
    assert (
        crm_with_document({"fiches": [SALE, SALE | {"id": "2"}], "total": total})
        .sales_list()
        .listed
        == 2
    )


def test_fewer_fiches_than_the_announced_total_are_a_transient_error() -> None:
    gateway = crm_with_document(LIST | {"total": 3})
    raised = gateway.list_error()
    assert type(raised) is TransientError
    assert str(raised) == "The CRM left 2 fiches out of the sales list of 2026-02-03."
    assert gateway.waits.seconds == [1, 2]


def without(document: dict[str, object], name: str) -> dict[str, object]:
    return {key: value for key, value in document.items() if key != name}


@every_case(
    ("document", "where"),
    [
        ([], "its top level"),
        (None, "its top level"),
        ("", "its top level"),
        ({}, "fiches"),
        ({"total": 0}, "fiches"),
        ({"fiches": None, "total": 0}, "fiches"),
        ({"fiches": {}, "total": 0}, "fiches"),
        ({"data": [], "total": 0}, "fiches"),
        ({"fiches": []}, "total"),
        ({"fiches": [], "total": "0"}, "total"),
        ({"fiches": [], "total": None}, "total"),
        ({"fiches": [], "total": -1}, "total"),
        ({"fiches": [None], "total": 1}, "fiches.0"),
        ({"fiches": [SALE, []], "total": 2}, "fiches.1"),
        ({"fiches": [without(SALE, "id")], "total": 1}, "fiches.0"),
        *[
            ({"fiches": [SALE | {"id": wrong}], "total": 1}, "fiches.0")
            for wrong in (None, "", "  ")
        ],
        *[
            ({"fiches": [SALE | {"id": wrong}], "total": 1}, "fiches.0.id")
            for wrong in (True, 1.5, ["1"], {}, "1" * 501)
        ],
        *[
            ({"fiches": [without(SALE, name)], "total": 1}, f"fiches.0.{name}")
            for name in SALE
            if name not in {"id", "recordings"}
        ],
        *[
            ({"fiches": [SALE | {name: 7}], "total": 1}, f"fiches.0.{name}")
            for name in SALE
            if name != "id"
        ],
        ({"fiches": [SALE | {"date_insertion": "hier"}], "total": 1}, "fiches.0.date_insertion"),
        ({"fiches": [SALE | {"recordings": [{}]}], "total": 1}, "fiches.0.recordings.0.call_id"),
    ],
)
def test_a_malformed_list_is_an_error_and_never_an_empty_day(document: object, where: str) -> None:
    raised = crm_with_document(document).list_error()
    assert type(raised) is PermanentError
    assert (
        str(raised)
        == f"The CRM's answer for the sales list of 2026-02-03 has an unexpected value at {where}."
    )


@pytest.mark.parametrize(
    ("rule", "error", "attempts"),
    [
        ({"status": 401}, PermanentError, 1),
        ({"status": 404}, PermanentError, 1),
        ({"status": 422}, PermanentError, 1),
        ({"status": 429}, TransientError, 3),
        ({"status": 500}, TransientError, 3),
        ({"drop": True}, TransientError, 3),
        ({"body": "cut_short"}, TransientError, 3),
        ({"body": "truncated"}, TransientError, 3),
        ({"body": "empty"}, TransientError, 3),
        ({"body": "not_json"}, TransientError, 3),
        ({"body": "wrong_types"}, PermanentError, 1),
        ({"body": "success_false"}, PermanentError, 1),
        ({"hang": True}, TransientError, 3),
    ],
)
def test_each_sales_list_response_has_its_error_and_number_of_attempts(
    simulator_url: str, rule: dict[str, object], error: type[AutomationError], attempts: int
) -> None:
    gateway = Crm(simulator_url, timeout_seconds=0.2 if "hang" in rule else 30)
    add_fault(gateway, **rule)
    raised = gateway.list_error()
    assert type(raised) is error
    assert not isinstance(raised, NotFoundError)
    assert "the sales list of 2026-02-03" in str(raised)
    wait_until(lambda: call_count(gateway.url, ITEM, "crm.sales_list") == attempts)


def test_a_temporary_failure_is_retried_until_it_succeeds(gateway: Crm) -> None:
    add_fault(gateway, first=2, body="truncated")
    assert gateway.sales_list().listed == len(DAY)
