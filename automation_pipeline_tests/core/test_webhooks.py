"""Webhooks: body, signature, and the state of a delivery after an attempt."""

import asyncio
import hashlib
import hmac

from automation_pipeline.core.errors import PermanentError, TransientError
from automation_pipeline.core.webhooks import (
    Delivery,
    DeliveryPolicy,
    DeliveryStatus,
    WebhookAnswer,
    after_answer,
    after_error,
    attempt,
    body_of,
    mac_of,
    mac_with_time,
    signed_headers,
)
from automation_pipeline_tests.cases import every_case


def test_a_body_is_serialised_independently_of_key_order() -> None:
    assert (
        body_of({"b": "é", "a": [1]})
        == body_of({"a": [1], "b": "é"})
        == '{"a":[1],"b":"é"}'.encode()
    )


def test_a_receiver_can_verify_the_signature() -> None:
    body = b'{"a":1}'
    assert mac_of("s3cret", body) == hmac.new(b"s3cret", body, hashlib.sha256).hexdigest()
    assert (
        mac_with_time("s3cret", body, "17")
        == hmac.new(b"s3cret", b"17." + body, hashlib.sha256).hexdigest()
    )
    assert mac_with_time("s3cret", body, "17") != mac_with_time("s3cret", body, "18")
    headers = {
        "Content-Type": "application/json",
        "X-Automation-Event": "run.completed",
        "X-Automation-Delivery": "delivery-1",
    }
    assert signed_headers("run.completed", "delivery-1", body, None, 17) == headers
    assert signed_headers("run.completed", "delivery-1", body, "s3cret", 17) == {
        **headers,
        "X-Automation-Signature": f"t=17,v1={mac_with_time('s3cret', body, '17')}",
    }


FIVE_ATTEMPTS = DeliveryPolicy(attempts=5)
PENDING, SENT, FAILED = DeliveryStatus.PENDING, DeliveryStatus.SENT, DeliveryStatus.FAILED


@every_case(
    ("status", "becomes"),
    [
        (200, SENT), (204, SENT), (299, SENT), (300, FAILED), (302, FAILED), (307, FAILED), (400, FAILED),
        (401, FAILED), (403, FAILED), (404, FAILED), (408, PENDING), (410, FAILED), (422, FAILED), (425, PENDING),
        (429, PENDING), (500, PENDING), (502, PENDING), (503, PENDING), (504, PENDING),
    ],
)  # fmt: skip
def test_the_response_status_decides_the_delivery_status(
    status: int, becomes: DeliveryStatus
) -> None:
    delivery = after_answer(WebhookAnswer(status, "words"), 1, FIVE_ATTEMPTS)
    error = None if becomes is SENT else f"The receiver answered {status}"
    pause = 10 if becomes is PENDING else 0
    assert delivery == Delivery(becomes, 1, status, "words", error, pause)


def test_the_pause_doubles_until_the_last_attempt() -> None:
    pauses = [
        after_answer(WebhookAnswer(503, ""), attempts, FIVE_ATTEMPTS).pause_seconds
        for attempts in range(1, 5)
    ]
    assert pauses == [10, 20, 40, 80]
    assert after_answer(WebhookAnswer(503, ""), 5, FIVE_ATTEMPTS).status is FAILED
    assert after_error(TransientError("no"), 5, FIVE_ATTEMPTS) == Delivery(FAILED, 5, error="no")


@every_case(("asked", "pause"), [(None, 10), (3, 10), (120, 120), (1e9, 3600)])
def test_a_receiver_can_request_a_longer_pause_up_to_a_cap(
    asked: float | None, pause: float
) -> None:
    assert after_answer(WebhookAnswer(429, "", asked), 1, FIVE_ATTEMPTS).pause_seconds == pause
    assert (
        after_error(TransientError("no", retry_after_seconds=asked), 1, FIVE_ATTEMPTS).pause_seconds
        == pause
    )


def test_a_permanent_error_fails_and_a_transient_one_is_retried() -> None:
    assert after_error(PermanentError("IP not allowed"), 1, FIVE_ATTEMPTS) == Delivery(
        FAILED, 1, error="IP not allowed"
    )
    assert after_error(TransientError("no"), 1, FIVE_ATTEMPTS) == Delivery(
        PENDING, 1, error="no", pause_seconds=10
    )


def test_a_policy_can_retry_refused_deliveries_up_to_its_attempts() -> None:
    retries_refusals = DeliveryPolicy(attempts=2, retries_refusals=True)
    assert after_answer(WebhookAnswer(404, ""), 1, retries_refusals).status is PENDING
    assert after_answer(WebhookAnswer(404, ""), 2, retries_refusals).status is FAILED
    assert after_error(PermanentError("IP not allowed"), 1, retries_refusals).status is FAILED


@every_case(
    ("outcome", "becomes", "error"),
    [
        (None, SENT, None),
        (WebhookAnswer(204, ""), SENT, None),
        (WebhookAnswer(503, ""), PENDING, "The receiver answered 503"),
        (TransientError("silent"), PENDING, "silent"),
        (PermanentError("IP not allowed"), FAILED, "IP not allowed"),
        (ZeroDivisionError("s3cret"), PENDING, "A bug: ZeroDivisionError"),
    ],
)
def test_every_result_of_an_attempt_becomes_a_delivery(
    outcome: WebhookAnswer | Exception | None, becomes: DeliveryStatus, error: str | None
) -> None:
    async def send() -> WebhookAnswer | None:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    delivery = asyncio.run(attempt(send(), 1, FIVE_ATTEMPTS))
    assert (delivery.status, delivery.attempts, delivery.error) == (becomes, 1, error)


def test_an_attempt_that_takes_too_long_is_cancelled() -> None:
    async def never() -> WebhookAnswer | None:
        await asyncio.Event().wait()
        return None

    delivery = asyncio.run(attempt(never(), 1, DeliveryPolicy(attempts=5, attempt_seconds=0.01)))
    assert (delivery.status, delivery.error) == (
        PENDING,
        "The receiver did not answer within 0.01 s",
    )
