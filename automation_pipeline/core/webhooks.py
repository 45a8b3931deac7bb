"""Webhooks: the body, the signature, and the state of a delivery after each attempt."""

import asyncio
import hashlib
import hmac
import json
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random
from typing import Protocol

from automation_pipeline.core.errors import AutomationError, TransientError, sentence_of
from automation_pipeline.core.retry import Backoff, is_transient_status

# The longest pause that a receiver can request.
LONGEST_PAUSE_SECONDS = 3600.0
# The delivering process ended before the receiver answered.
INTERRUPTED = "The delivery was interrupted"
_BACKOFF = Backoff(base_seconds=10, cap_seconds=LONGEST_PAUSE_SECONDS)


class DeliveryStatus(StrEnum):
    PENDING = "pending"
    SENT = "sent"
    FAILED = "failed"


@dataclass(frozen=True)
class WebhookAnswer:
    """The receiver's answer, with at most 1000 characters of its body."""

    status: int
    text: str
    retry_after_seconds: float | None = None


@dataclass(frozen=True)
class DeliveryPolicy:
    """The number of attempts and the waits between them. An attempt ends after `attempt_seconds`.
    With `retries_refusals`, messages that the receiver refused are retried too."""

    attempts: int
    backoff: Backoff = _BACKOFF
    attempt_seconds: float = 25.0
    retries_refusals: bool = False


@dataclass(frozen=True)
class Delivery:
    """The state of a message after `attempts` attempts. A pending one is retried after its pause."""

    status: DeliveryStatus
    attempts: int
    status_code: int | None = None
    response_body: str | None = None
    error: str | None = None
    pause_seconds: float = 0.0


async def attempt(
    sending: Awaitable[WebhookAnswer | None], attempts: int, policy: DeliveryPolicy
) -> Delivery:
    """Await `sending`, the attempt with the number `attempts`, and return the state of the message.
    Failures are returned, not raised. An answer of None means that a mail server accepted the message."""
    try:
        async with asyncio.timeout(policy.attempt_seconds):
            answer = await sending
        if answer is None:
            return Delivery(DeliveryStatus.SENT, attempts)
        return after_answer(answer, attempts, policy)
    except TimeoutError:
        error = TransientError(f"The receiver did not answer within {policy.attempt_seconds:g} s")
    except AutomationError as refusal:
        error = refusal
    except Exception as bug:  # noqa: BLE001  a bug in one delivery does not stop the others
        error = TransientError(f"A bug: {type(bug).__name__}")
    return after_error(error, attempts, policy)


def after_answer(answer: WebhookAnswer, attempts: int, policy: DeliveryPolicy) -> Delivery:
    if 200 <= answer.status < 300:
        return Delivery(DeliveryStatus.SENT, attempts, answer.status, answer.text)
    error = f"The receiver answered {answer.status}"
    if not (policy.retries_refusals or is_transient_status(answer.status)):
        return Delivery(DeliveryStatus.FAILED, attempts, answer.status, answer.text, error)
    pending = Delivery(DeliveryStatus.PENDING, attempts, answer.status, answer.text, error)
    return _pending(pending, policy, answer.retry_after_seconds)


def after_error(error: AutomationError, attempts: int, policy: DeliveryPolicy) -> Delivery:
    if not isinstance(error, TransientError):
        return Delivery(DeliveryStatus.FAILED, attempts, error=sentence_of(error))
    pending = Delivery(DeliveryStatus.PENDING, attempts, error=sentence_of(error))
    return _pending(pending, policy, error.retry_after_seconds)


def _pending(delivery: Delivery, policy: DeliveryPolicy, retry_after: float | None) -> Delivery:
    """The delivery with its pause, or failed after the last attempt."""
    if delivery.attempts >= policy.attempts:
        return replace(delivery, status=DeliveryStatus.FAILED)
    pause = policy.backoff.wait(delivery.attempts, retry_after, Random())
    return replace(delivery, pause_seconds=min(pause, LONGEST_PAUSE_SECONDS))


class WebhookSender(Protocol):
    async def send(self, url: str, body: bytes, headers: Mapping[str, str]) -> WebhookAnswer:
        """POST once, following redirects with 307 and 308, and return the answer, whatever its
        status.

        Raises TransientError without an answer, and PermanentError if the address or a redirect
        must not be called. Messages contain only the origin of the address.
        """
        ...


def body_of(payload: Mapping[str, object]) -> bytes:
    """The same bytes for every attempt: the order of keys in the database does not matter."""
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()


def mac_of(secret: str, signed: bytes) -> str:
    return hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


def mac_with_time(secret: str, body: bytes, time: str) -> str:
    """Signs the time too, so that a receiver can reject an old message."""
    return mac_of(secret, f"{time}.".encode() + body)


def signature(secret: str, body: bytes, unix_seconds: int) -> str:
    return f"t={unix_seconds},v1={mac_with_time(secret, body, str(unix_seconds))}"


def signed_headers(
    event: str, delivery: str, body: bytes, secret: str | None, unix_seconds: int
) -> dict[str, str]:
    """`delivery` identifies the message in all attempts."""
    headers = {
        "Content-Type": "application/json",
        "X-Automation-Event": event,
        "X-Automation-Delivery": delivery,
    }
    if secret:
        headers["X-Automation-Signature"] = signature(secret, body, unix_seconds)
    return headers
