"""Failures of the shop: their kind, retry delay, message and bucket status."""

import json
from datetime import timedelta
from typing import Any

import httpx
from hypothesis import example, given
from hypothesis import strategies as st

from automation_pipeline.pricing.models.shop import BucketStatus, CallFailure
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.clients.mock_answers import json_answer
from automation_pipeline_tests.clients.shopify_client import (
    NOW,
    PATH,
    ROOT,
    TOKEN,
    catalogue,
    costing,
    failing,
    page,
    price_document,
    prices,
    updated,
    write,
)


def verdict(failure: CallFailure) -> tuple[str, bool, bool]:
    return failure.kind.value, failure.retryable, failure.outcome_unknown


@every_case(
    ("status", "expected"),
    [
        (302, ("unknown", False, False)),
        (400, ("validation", False, False)),
        (401, ("authentication", False, False)),
        (402, ("shop_closed", False, False)),
        (403, ("authorization", False, False)),
        (404, ("not_found", False, False)),
        (408, ("network", True, True)),
        (409, ("conflict", False, False)),
        (422, ("validation", False, False)),
        (423, ("shop_closed", False, False)),
        (429, ("rate_limit", True, False)),
        (430, ("validation", False, False)),
        (500, ("server", True, True)),
        (502, ("server", True, True)),
        (503, ("server", True, True)),
    ],
)
@every_case("body", [b"", b"<html>", b'{"errors": "no"}', b"[" * 100_000])
def test_each_status_has_its_failure_kind(
    status: int, expected: tuple[str, bool, bool], body: bytes
) -> None:
    failure = write(lambda _: httpx.Response(status, content=body)).failure
    assert verdict(failure) == expected
    assert failure.message.startswith(f"The shop answered {status}")


@every_case(
    ("errors", "message"),
    [
        ("Exceeded 2 calls per second.", "The shop answered 422: Exceeded 2 calls per second."),
        (
            {"price": ["is bad", "is long"], "id": "?"},
            "The shop answered 422: price: is bad, is long; id: ?.",
        ),
        (["one", 2, "three"], "The shop answered 422: one; three."),
        (
            [{"message": "one"}, {"message": 2}, 7, {"message": "two"}],
            "The shop answered 422: one; two.",
        ),
        (7, "The shop answered 422."),
        (None, "The shop answered 422."),
        ([], "The shop answered 422."),
        ({"field": {"deep": ["x"]}}, "The shop answered 422: field."),
    ],
)
def test_every_form_of_error_message_is_read(errors: object, message: str) -> None:
    assert page(json_answer({"errors": errors}, 422)).failure.message == message


@every_case(
    ("status", "advice"),
    [(401, "SHOP_API_TOKEN"), (403, "scopes"), (404, "SHOP_API_BASE_URL and SHOP_API_VERSION")],
)
def test_known_failures_name_the_setting_to_check(status: int, advice: str) -> None:
    assert advice in page(json_answer({}, status)).failure.message


@every_case(
    ("header", "seconds"),
    [
        ("2.0", 2.0),
        ("30", 30.0),
        ("0", 1.0),
        ("-5", None),
        ("abc", None),
        ("", None),
        ("3600", 3600.0),
        ("1" * 5000, None),
        ("Mon, 04 May 2026 10:01:30 GMT", 90.0),
        ("Mon, 04 May 2026 09:00:00 GMT", 1.0),
    ],
)
@every_case("status", [429, 503])
def test_the_retry_after_of_the_shop_is_kept(
    header: str, seconds: float | None, status: int
) -> None:
    assert page(json_answer({}, status, Retry_After=header)).failure.retry_after_seconds == seconds


@every_case(
    ("available", "requested", "rate", "seconds"),
    [
        (2, 10, 100.0, 1.0),
        (0, 753, 100.0, 7.53),
        (-50, 50, 50, 2.0),
        (2, None, 100.0, None),
        (2, 10, 0, None),
    ],
)
def test_a_throttled_response_waits_for_the_bucket_to_refill(
    available: float, requested: float | None, rate: float, seconds: float | None
) -> None:
    answered = failing("Throttled", "THROTTLED") | costing(available, requested, rate)
    called = write(json_answer(answered))
    assert called.is_throttled
    assert verdict(called.failure) == ("rate_limit", True, False)
    assert called.failure.retry_after_seconds == seconds


def test_a_throttled_response_without_a_bucket_uses_the_retry_after_header() -> None:
    assert (
        page(
            json_answer(failing("Throttled", "throttled"), Retry_After="4")
        ).failure.retry_after_seconds
        == 4
    )
    assert page(json_answer(failing("Throttled", "throttled"))).failure.retry_after_seconds is None


@every_case(
    ("answered", "expected"),
    [
        (failing("?", "INTERNAL_SERVER_ERROR"), ("server", True, True)),
        (failing("?", "ACCESS_DENIED"), ("authorization", False, False)),
        (
            failing("?", "ACCESS_DENIED", data={"productVariantsBulkUpdate": None}),
            ("authorization", False, False),
        ),
        (failing("?", "SHOP_INACTIVE"), ("shop_closed", False, False)),
        (failing("?", "MAX_COST_EXCEEDED"), ("validation", False, False)),
        (failing("?", "undefinedField"), ("unknown", False, False)),
        (failing("?", 7), ("unknown", False, False)),
        ({"errors": "no"}, ("unknown", False, False)),
        ({"errors": {"base": ["no"]}}, ("unknown", False, False)),
        ({"errors": ["no"]}, ("unknown", False, False)),
        # Something was done, or may have been: the price is read before anything else.
        (failing("?", None, data={"productVariantsBulkUpdate": None}), ("network", True, True)),
        (failing("?", None, data=None), ("network", True, True)),
        (failing("?", "ACCESS_DENIED", **updated()), ("authorization", False, True)),
        (failing("?", "THROTTLED", **updated()), ("rate_limit", True, True)),
    ],
)
def test_errors_take_precedence_over_data(
    answered: dict[str, Any], expected: tuple[str, bool, bool]
) -> None:
    called = write(json_answer(answered))
    assert (called.value, verdict(called.failure)) == (None, expected)


def test_throttling_takes_precedence_over_other_errors() -> None:
    errors = [
        {"message": "a", "extensions": {"code": "OTHER"}},
        {"message": "b", "extensions": {"code": "THROTTLED"}},
    ]
    assert page(json_answer({"errors": errors})).is_throttled


def test_a_query_with_data_and_errors_fails_with_a_known_outcome() -> None:
    failure = prices(json_answer(failing("no", "ACCESS_DENIED", **price_document()))).failure
    assert (verdict(failure), failure.message) == (
        ("authorization", False, False),
        "The shop answered with an error: no.",
    )


@every_case("errors", [None, [], {}, ""])
def test_an_empty_errors_field_is_no_failure(errors: object) -> None:
    assert page(json_answer(catalogue() | {"errors": errors})).failure is None


@every_case(
    ("extensions", "bucket"),
    [
        (costing(1990), BucketStatus(1990.0, 2000.0, 100.0)),
        (costing(-3), BucketStatus(-3.0, 2000.0, 100.0)),
        (costing(5000), BucketStatus(2000.0, 2000.0, 100.0)),
        (costing(1, maximum=1), BucketStatus(1.0, 1.0, 100.0)),
        (costing(1e9, rate=0.01, maximum=1e9), BucketStatus(1e9, 1e9, 0.01)),
        (costing(-1e9, rate=1e9), BucketStatus(-1e9, 2000.0, 1e9)),
        (costing(1, maximum=1e9 + 1), None),
        (costing(-1e9 - 1), None),
        (costing(1, rate=1e9 + 1), None),
        (costing("1990"), None),
        (costing(1990, rate=0), None),
        (costing(1990, rate=-1), None),
        (costing(1990, rate=1e-300), None),
        (costing(1990, maximum=0), None),
        (costing(10**400), None),
        (costing(True), None),
        ({"extensions": None}, None),
        ({"extensions": {"cost": 7}}, None),
        ({"extensions": {"cost": {"throttleStatus": []}}}, None),
        ({}, None),
    ],
)
def test_the_bucket_status_is_returned_from_every_response(
    extensions: dict[str, Any], bucket: BucketStatus | None
) -> None:
    for answered, status in (
        (catalogue(), 200),
        (failing("no"), 200),
        ({"errors": "no"}, 429),
        ({"data": 7}, 200),
    ):
        body = json.dumps(answered | extensions).encode()
        assert (
            page(lambda _, body=body, status=status: httpx.Response(status, content=body)).bucket
            == bucket
        )


@every_case("status", [200, 429, 500])
def test_every_response_has_its_request_id(status: int) -> None:
    assert page(json_answer({"errors": "no"}, status, X_Request_Id="abc-1")).request_id == "abc-1"
    assert len(page(json_answer(catalogue(), 200, X_Request_Id="x" * 9000)).request_id) == 200
    assert page(json_answer(catalogue())).request_id is None


def test_messages_are_short_and_show_neither_token_nor_path() -> None:
    pieces = f"{TOKEN[:4]}\0{TOKEN[4:]} {TOKEN[:4]}\u200b{TOKEN[4:]}"
    for result in (f"No {TOKEN} at {ROOT}", f"Nothing at {PATH}", pieces, "\0\n" + TOKEN * 1000):
        for answer in (
            json_answer({"errors": result}, 404),
            json_answer(failing(result)),
            json_answer({"errors": {result: [result]}}, 401),
        ):
            message = page(answer).failure.message
            assert len(message) < 450
            assert not any(secret in message for secret in (TOKEN, PATH, "/hidden", "\0", "\n"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["message", "extensions", "code"]), inner)
    ),
    max_leaves=8,
)
ANSWERS = st.fixed_dictionaries(
    {}, optional={"data": JSON, "errors": JSON, "extensions": JSON | st.just(costing(1))}
)


@given(
    body=(JSON | ANSWERS).map(lambda document: json.dumps(document).encode()) | st.binary(),
    status=st.sampled_from([200, 200, 200, 204, 302, 400, 401, 404, 413, 429, 503]),
    wait=st.none() | st.text(st.characters(min_codepoint=32, max_codepoint=126)),
)
@example(b"[" * 100_000, 200, None)
@example(b"1" * 5000, 200, "Mon, 99 May 99999 10:01:30 GMT")
@example(b'{"errors": "\\ud800"}', 400, "1" * 5000)
def test_any_response_body_becomes_a_failure_without_an_exception(
    body: bytes, status: int, wait: str | None
) -> None:
    headers = {"Retry-After": wait, "X-Request-Id": wait} if wait is not None else {}
    for ask in (page, prices, write):
        called = ask(lambda _: httpx.Response(status, content=body, headers=headers))
        assert (called.value is None, called.failure is not None) == (True, True)
        assert called.failure.retry_after_seconds is None or called.failure.retry_after_seconds >= 1


def test_retry_after_dates_are_relative_to_the_injected_clock() -> None:
    later = NOW + timedelta(seconds=30)
    answered = json_answer({}, 429, Retry_After="Mon, 04 May 2026 10:01:30 GMT")
    assert page(answered, now=lambda: later).failure.retry_after_seconds == 60
