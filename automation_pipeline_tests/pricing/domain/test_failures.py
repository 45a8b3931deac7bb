"""What each sign of failure means."""

from automation_pipeline.pricing.domain.failures import PRICE_DRIFT, FailureKind, Signal, classified
from automation_pipeline_tests.tables import every_case


@every_case(
    ("signal", "kind", "retryable"),
    [
        (Signal(status=429), "rate_limit", True),
        (Signal(status=200, code="THROTTLED"), "rate_limit", True),
        (Signal(code="429"), "rate_limit", True),
        (Signal(code="ECONNRESET"), "network", True),
        (Signal(code="ETIMEDOUT"), "network", True),
        (Signal(code="ENOTFOUND"), "network", True),
        (Signal(code="econnrefused"), "network", True),
        (Signal(lost=True), "network", True),
        (Signal(status=408), "network", True),
        (Signal(status=500), "server", True),
        (Signal(status=503), "server", True),
        (Signal(status=599), "server", True),
        (Signal(status=200, code="INTERNAL_SERVER_ERROR"), "server", True),
        (Signal(status=400), "validation", False),
        (Signal(status=418), "validation", False),
        (Signal(status=422), "validation", False),
        (Signal(status=401), "authentication", False),
        (Signal(status=403), "authorization", False),
        (Signal(status=200, code="ACCESS_DENIED"), "authorization", False),
        (Signal(status=404), "not_found", False),
        (Signal(status=409), "conflict", False),
        (Signal(code=PRICE_DRIFT), "conflict", False),
        (Signal(status=402), "shop_closed", False),
        (Signal(status=423), "shop_closed", False),
        (Signal(status=200, code="NEGATIVE_PRICE_VALUE", user_error=True), "validation", False),
        (Signal(status=200, code="PRODUCT_DOES_NOT_EXIST", user_error=True), "not_found", False),
        (Signal(), "unknown", False),
        (Signal(status=302), "unknown", False),
        (Signal(status=404, retryable=True), "not_found", True),
        (Signal(status=500, retryable=False), "server", False),
    ],
)
def test_a_failure_has_a_kind_and_a_verdict(signal: Signal, kind: str, *, retryable: bool) -> None:
    failure = classified(signal, "It failed.")
    assert (failure.kind, failure.retryable, failure.message) == (kind, retryable, "It failed.")


@every_case(
    ("signal", "unknown"),
    [
        (Signal(lost=True), True),
        (Signal(code="ETIMEDOUT", lost=True), True),
        (Signal(status=502), True),
        (Signal(status=408), True),
        (Signal(code="ECONNREFUSED"), False),
        (Signal(status=429), False),
        (Signal(status=404), False),
    ],
)
def test_a_call_that_may_have_been_heard_is_of_unknown_outcome(signal: Signal, *, unknown: bool) -> None:
    assert classified(signal, "").outcome_unknown is unknown


def test_only_what_the_whole_shop_would_refuse_is_critical() -> None:
    critical = {status for status in range(400, 600) if classified(Signal(status=status), "").is_critical}
    assert critical == {401, 402, 423}


def test_kinds_are_those_that_reports_name() -> None:
    assert {"rate_limit", "network", "server", "validation", "authentication", "authorization"} < set(FailureKind)
