"""Price writes: the request per price and the outcome per price."""

import json
from typing import Any

import httpx
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.pricing.models.shop import CallFailure, FailureKind, Price, PriceWrite
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.clients.mock_answers import json_answer
from automation_pipeline_tests.clients.shopify_client import (
    TOKEN,
    WRITES,
    complaint,
    priced,
    updated,
    write,
)

CONFIRMED = [priced(1, "1.00"), priced(2, "2.00"), priced(3, "3.00")]


def sent(given: PriceWrite) -> dict[str, Any]:
    requests: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(200, json=updated())

    write(answer, given)
    (request,) = requests
    variables = json.loads(request.content)["variables"]
    assert variables["productId"] == "gid://shopify/Product/7"
    (variant,) = variables["variants"]
    return variant


@every_case(
    ("price", "writes_compare_at", "expected"),
    [
        (Price(1999, "EUR"), False, {"price": "19.99"}),
        (Price(1999, "EUR", 2990), False, {"price": "19.99"}),
        (Price(1999, "EUR", 2990), True, {"price": "19.99", "compareAtPrice": "29.90"}),
        (Price(1999, "EUR"), True, {"price": "19.99", "compareAtPrice": None}),
        (Price(5, "EUR"), False, {"price": "0.05"}),
        (Price(1299, "JPY", 1500), True, {"price": "1299", "compareAtPrice": "1500"}),
        (Price(1234, "KWD"), False, {"price": "1.234"}),
    ],
)
def test_a_compare_at_price_is_sent_cleared_or_omitted(
    price: Price, writes_compare_at: bool, expected: dict[str, Any]
) -> None:
    variant = sent(PriceWrite("11", price, writes_compare_at))
    assert variant == {"id": "gid://shopify/ProductVariant/11", **expected}


def outcome(answered: dict[str, Any], *writes: PriceWrite) -> dict[str, object]:
    """The amount or the kind of failure per variant."""
    written = write(json_answer(answered), *writes).value
    return {
        key: result.kind.value if isinstance(result, CallFailure) else result.unit_amount
        for key, result in written.items()
    }


# The second variant has another price than requested, the third another compare-at price.
UNCHANGED = [priced(1, "1.00"), priced(2, "2.50"), priced(3, "3.00", "9.50")]
BAD_PRICE = complaint("variants", "1", "price")
GONE = complaint("variants", "2", "id", code="PRODUCT_VARIANT_DOES_NOT_EXIST")
NO_PRODUCT = complaint("productId", code="PRODUCT_DOES_NOT_EXIST")


@every_case(
    ("confirmed", "errors", "expected"),
    [
        (CONFIRMED, (), {"1": 100, "2": 200, "3": 300}),
        (CONFIRMED[:1], (BAD_PRICE, GONE), {"1": 100, "2": "validation", "3": "not_found"}),
        (CONFIRMED, (BAD_PRICE,), {"1": 100, "2": "validation", "3": 300}),
        (CONFIRMED[:2], (), {"1": 100, "2": 200, "3": "network"}),
        ([], (), {"1": "network", "2": "network", "3": "network"}),
        ([], (NO_PRODUCT,), {"1": "not_found", "2": "not_found", "3": "not_found"}),
        (
            CONFIRMED[:1],
            (complaint(code="PRODUCT_SUSPENDED"),),
            {"1": 100, "2": "validation", "3": "validation"},
        ),
        (CONFIRMED[:1], (BAD_PRICE, NO_PRODUCT), {"1": 100, "2": "validation", "3": "not_found"}),
        (
            CONFIRMED[:1],
            (complaint("variants", "3", "price"),),
            {"1": 100, "2": "validation", "3": "validation"},
        ),
        (
            CONFIRMED[:1],
            (complaint("variants", "9" * 40),),
            {"1": 100, "2": "validation", "3": "validation"},
        ),
        (
            CONFIRMED[:1],
            (complaint("variants", "-1"),),
            {"1": 100, "2": "validation", "3": "validation"},
        ),
        (
            CONFIRMED[1:],
            (complaint("variants", 0, "price"),),
            {"1": "validation", "2": 200, "3": 300},
        ),
        (
            CONFIRMED[1:],
            (complaint("input", "variants", "0"),),
            {"1": "validation", "2": 200, "3": 300},
        ),
        ([*CONFIRMED, priced(99)], (), {"1": 100, "2": 200, "3": 300}),
        ([*CONFIRMED[:2], {}, priced(3, None)], (), {"1": 100, "2": 200, "3": "network"}),
        (
            UNCHANGED,
            (complaint(code="PRODUCT_SUSPENDED"),),
            {"1": 100, "2": "validation", "3": "validation"},
        ),
        (UNCHANGED, (NO_PRODUCT,), {"1": 100, "2": "not_found", "3": "not_found"}),
        (UNCHANGED, (BAD_PRICE,), {"1": 100, "2": "validation", "3": "network"}),
        (UNCHANGED, (), {"1": 100, "2": "network", "3": "network"}),
    ],
)
def test_every_write_returns_a_price_or_a_failure(
    confirmed: list[object], errors: tuple[object, ...], expected: dict[str, object]
) -> None:
    assert outcome(updated(*confirmed, errors=errors)) == expected


def test_a_price_missing_from_the_response_has_an_unknown_outcome() -> None:
    silent = write(json_answer(updated())).value["1"]
    assert (silent.retryable, silent.outcome_unknown) == (True, True)


def test_a_refused_price_is_a_final_failure_with_a_known_outcome() -> None:
    refused = write(json_answer(updated(errors=(complaint("variants", "0", "price"),)))).value["1"]
    assert (refused.retryable, refused.outcome_unknown) == (False, False)
    assert refused.message == "The shop refuses the price: is not right, INVALID_INPUT."


@every_case(
    ("requested", "expected"),
    [
        (PriceWrite("1", Price(99, "EUR"), True), priced(1, "0.99", None)),
        (PriceWrite("1", Price(99, "JPY", 120), True), priced(1, "99", "120")),
        (PriceWrite("1", Price(99, "EUR"), False), priced(1, "0.99", "1.20")),
    ],
)
def test_confirmed_prices_are_returned(requested: PriceWrite, expected: dict[str, Any]) -> None:
    compare_at = None if expected["compareAtPrice"] is None else 120
    assert write(json_answer(updated(expected)), requested).value == {
        "1": Price(99, requested.price.currency, compare_at)
    }


def test_a_confirmed_price_that_differs_has_an_unknown_outcome() -> None:
    requested = PriceWrite("1", Price(99, "EUR"), True)
    for listed in (priced(1, "1.00", None), priced(1, "0.99", "9.00")):
        failure = write(json_answer(updated(listed)), requested).value["1"]
        assert (failure.retryable, failure.outcome_unknown) == (True, True)
        assert failure.message == "The shop shows another price than the one that was written."


def test_user_errors_without_a_message_are_reported() -> None:
    refused = write(
        json_answer(updated(errors=(complaint("variants", "0", code=None, message=7),)))
    ).value["1"]
    assert (refused.kind, refused.message) == (
        FailureKind.VALIDATION,
        "The shop refuses the price: it gives no reason.",
    )


def test_user_errors_are_truncated_and_mask_the_token() -> None:
    long = complaint(
        "variants", "0", message=f"{TOKEN} is\0 not\n good " + "x" * 5000, code="y" * 5000
    )
    message = write(json_answer(updated(errors=(long,)))).value["1"].message
    assert message.startswith("The shop refuses the price: *** is not good xxx")
    assert len(message) < 700


@every_case(
    "data",
    [
        None,
        [],
        {},
        {"productVariantsBulkUpdate": None},
        {"productVariantsBulkUpdate": []},
        {"productVariantsBulkUpdate": {"productVariants": 7}},
        {"productVariantsBulkUpdate": {"productVariants": [priced(1, "x")]}},
        {"productVariantsBulkUpdate": {"productVariants": [priced(1, "9" * 14)]}},
        {"productVariantsBulkUpdate": {"productVariants": [{"id": "1", "price": "1.00"}]}},
        {"productVariantsBulkUpdate": {"userErrors": ["no"]}},
    ],
)
def test_an_unreadable_write_response_has_an_unknown_outcome(data: object) -> None:
    called = write(json_answer({"data": data}))
    assert called.value is None
    assert (called.failure.retryable, called.failure.outcome_unknown) == (True, True)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["variants", "0", "price"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["id", "price", "field"]), inner)
    ),
    max_leaves=6,
)
ENTRIES = st.lists(
    st.builds(priced, st.integers(0, 5), st.just("1.00") | JSON, JSON) | JSON, max_size=4
)
ERRORS = st.lists(
    st.builds(lambda field, code: complaint(code=code) | {"field": field}, JSON, JSON), max_size=4
)


@given(confirmed=ENTRIES, errors=ERRORS | JSON)
def test_every_written_price_has_an_outcome(confirmed: list[object], errors: object) -> None:
    body = json.dumps(updated(*confirmed, errors=errors)).encode()
    called = write(lambda _: httpx.Response(200, content=body))
    assert (called.value is None) != (called.failure is None)
    assert called.failure or set(called.value) == {each.variant_id for each in WRITES}
