"""What each sign of failure means."""

from automation_pipeline.pricing.models.shop import (
    PRICE_DRIFT,
    FailureKind,
    FailureSignal,
    classify_failure,
)
from automation_pipeline_tests.tables import every_case


@every_case(
    ("signal", "kind", "retryable"),
    [
        (FailureSignal(status=429), "rate_limit", True),
        (FailureSignal(status=200, code="THROTTLED"), "rate_limit", True),
        (FailureSignal(code="429"), "rate_limit", True),
        (FailureSignal(code="ECONNRESET"), "network", True),
        (FailureSignal(code="ETIMEDOUT"), "network", True),
        (FailureSignal(code="ENOTFOUND"), "network", True),
        (FailureSignal(code="econnrefused"), "network", True),
        (FailureSignal(lost=True), "network", True),
        (FailureSignal(status=408), "network", True),
        (FailureSignal(status=500), "server", True),
        (FailureSignal(status=503), "server", True),
        (FailureSignal(status=599), "server", True),
        (FailureSignal(status=200, code="INTERNAL_SERVER_ERROR"), "server", True),
        (FailureSignal(status=400), "validation", False),
        (FailureSignal(status=418), "validation", False),
        (FailureSignal(status=422), "validation", False),
        (FailureSignal(status=401), "authentication", False),
        (FailureSignal(status=403), "authorization", False),
        (FailureSignal(status=200, code="ACCESS_DENIED"), "authorization", False),
        (FailureSignal(status=404), "not_found", False),
        (FailureSignal(status=409), "conflict", False),
        (FailureSignal(code=PRICE_DRIFT), "conflict", False),
        (FailureSignal(status=402), "shop_closed", False),
        (FailureSignal(status=423), "shop_closed", False),
        (
            FailureSignal(status=200, code="NEGATIVE_PRICE_VALUE", user_error=True),
            "validation",
            False,
        ),
        (
            FailureSignal(status=200, code="PRODUCT_DOES_NOT_EXIST", user_error=True),
            "not_found",
            False,
        ),
        (FailureSignal(), "unknown", False),
        (FailureSignal(status=302), "unknown", False),
        (FailureSignal(status=404, retryable=True), "not_found", True),
        (FailureSignal(status=500, retryable=False), "server", False),
    ],
)
def test_a_failure_has_a_kind_and_a_verdict(
    signal: FailureSignal, kind: str, *, retryable: bool
) -> None:
    failure = classify_failure(signal, "It failed.")
    assert (failure.kind, failure.retryable, failure.message) == (kind, retryable, "It failed.")


@every_case(
    ("signal", "unknown"),
    [
        (FailureSignal(lost=True), True),
        (FailureSignal(code="ETIMEDOUT", lost=True), True),
        (FailureSignal(status=502), True),
        (FailureSignal(status=408), True),
        (FailureSignal(code="ECONNREFUSED"), False),
        (FailureSignal(status=429), False),
        (FailureSignal(status=404), False),
    ],
)
def test_a_call_that_may_have_been_heard_is_of_unknown_outcome(
    signal: FailureSignal, *, unknown: bool
) -> None:
    assert classify_failure(signal, "").outcome_unknown is unknown


def test_only_what_the_whole_shop_would_refuse_is_critical() -> None:
    critical = {
        status
        for status in range(400, 600)
        if classify_failure(FailureSignal(status=status), "").is_critical
    }
    assert critical == {401, 402, 423}


def test_kinds_are_those_that_reports_name() -> None:
    assert {
        "rate_limit",
        "network",
        "server",
        "validation",
        "authentication",
        "authorization",
    } < set(FailureKind)
