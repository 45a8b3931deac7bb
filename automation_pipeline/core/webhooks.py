"""Webhooks and alerts: body, signature, and what becomes of a delivery after an attempt."""

import asyncio
import hashlib
import hmac
import json
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Protocol

from automation_pipeline.core.errors import AutomationError, TransientError, sentence_of
from automation_pipeline.core.retry import TRANSIENT_STATUSES, Backoff

# A receiver may ask for a pause; for a longer one than this it is not asked.
LONGEST_PAUSE_SECONDS = 3600.0
# The process that delivers has ended before the receiver answered.
INTERRUPTED = "The delivery was interrupted"
_BACKOFF = Backoff(base_seconds=10, cap_seconds=LONGEST_PAUSE_SECONDS)


class DeliveryStatus(StrEnum):
    PENDING = "pending"
    SENT = "sent"
    FAILED = "failed"


@dataclass(frozen=True)
class WebhookAnswer:
    """What a receiver said, in at most 1000 characters."""

    status: int
    text: str
    retry_after_seconds: float | None = None


@dataclass(frozen=True)
class DeliveryPolicy:
    """How often a message is tried, and how long is waited between. One attempt ends after
    `attempt_seconds`. Who `insists` tries again also what a receiver has refused."""

    attempts: int
    backoff: Backoff = _BACKOFF
    attempt_seconds: float = 25.0
    insists: bool = False


@dataclass(frozen=True)
class Delivery:
    """How a message stands after `attempts` of them; a pending one is tried again after its
    pause."""

    status: DeliveryStatus
    attempts: int
    status_code: int | None = None
    response_body: str | None = None
    error: str | None = None
    pause_seconds: float = 0.0


async def attempt(
    sending: Awaitable[WebhookAnswer | None], attempts: int, patience: DeliveryPolicy
) -> Delivery:
    """How a message stands after this attempt, its `attempts`-th. Whatever goes wrong is a value;
    None is an e-mail taken."""
    try:
        async with asyncio.timeout(patience.attempt_seconds):
            answer = await sending
        return delivered(attempts) if answer is None else after_answer(answer, attempts, patience)
    except TimeoutError:
        silence = TransientError(
            f"The receiver did not answer within {patience.attempt_seconds:g} s"
        )
        return after_error(silence, attempts, patience)
    except AutomationError as error:
        return after_error(error, attempts, patience)
    except Exception as error:  # noqa: BLE001  a bug in one delivery does not stop the others
        return after_error(TransientError(f"A bug: {type(error).__name__}"), attempts, patience)


def delivered(attempts: int, answer: WebhookAnswer | None = None) -> Delivery:
    """After an e-mail was taken, or a webhook answered, well or not."""
    if answer is None:
        return Delivery(DeliveryStatus.SENT, attempts)
    return Delivery(DeliveryStatus.SENT, attempts, answer.status, answer.text)


def after_answer(answer: WebhookAnswer, attempts: int, patience: DeliveryPolicy) -> Delivery:
    if 200 <= answer.status < 300:
        return delivered(attempts, answer)
    error = f"The receiver answered {answer.status}"
    passing = patience.insists or answer.status in TRANSIENT_STATUSES or answer.status >= 500
    pause = _pause(attempts, patience, answer.retry_after_seconds) if passing else None
    status = DeliveryStatus.FAILED if pause is None else DeliveryStatus.PENDING
    return Delivery(status, attempts, answer.status, answer.text, error, pause or 0.0)


def after_error(error: AutomationError, attempts: int, patience: DeliveryPolicy) -> Delivery:
    passing = isinstance(error, TransientError)
    pause = _pause(attempts, patience, error.retry_after_seconds) if passing else None
    status = DeliveryStatus.FAILED if pause is None else DeliveryStatus.PENDING
    return Delivery(status, attempts, error=sentence_of(error), pause_seconds=pause or 0.0)


def _pause(attempts: int, patience: DeliveryPolicy, asked_seconds: float | None) -> float | None:
    """None: it has been tried often enough."""
    if attempts >= patience.attempts:
        return None
    own = patience.backoff.delay(attempts, Random())
    return min(max(own, asked_seconds or 0.0), LONGEST_PAUSE_SECONDS)


class WebhookSender(Protocol):
    async def send(self, url: str, body: bytes, headers: Mapping[str, str]) -> WebhookAnswer:
        """What the receiver said to this POST, whatever its status: one attempt, with 307 and 308
        followed.

        TransientError: no answer this time. PermanentError: the address, or one that it leads to,
        is not called. No text holds any part of the address but its origin.
        """
        ...


def body_of(payload: Mapping[str, object]) -> bytes:
    """The same bytes at every attempt, whatever the database did to the order of the keys."""
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()


def mac_of(secret: str, signed: bytes) -> str:
    """HMAC-SHA256 in hexadecimal digits."""
    return hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


def mac_of_moment(secret: str, body: bytes, moment: str) -> str:
    """The moment is signed too, so that a receiver can turn an old message away."""
    return mac_of(secret, f"{moment}.".encode() + body)


def signature(secret: str, body: bytes, unix_seconds: int) -> str:
    return f"t={unix_seconds},v1={mac_of_moment(secret, body, str(unix_seconds))}"


def signed_headers(
    event: str, delivery: str, body: bytes, secret: str | None, unix_seconds: int
) -> dict[str, str]:
    """`delivery` names the message, and stays the same however often it is sent."""
    headers = {
        "Content-Type": "application/json",
        "X-Automation-Event": event,
        "X-Automation-Delivery": delivery,
    }
    if secret:
        headers["X-Automation-Signature"] = signature(secret, body, unix_seconds)
    return headers


class AlertSeverity(StrEnum):
    WARNING = "warning"
    CRITICAL = "critical"


class AlertStatus(StrEnum):
    """How its webhook stands. UNSENT: none was configured when it was raised."""

    PENDING = "pending"
    SENT = "sent"
    FAILED = "failed"
    UNSENT = "unsent"
