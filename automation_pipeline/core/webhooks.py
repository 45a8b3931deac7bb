"""Webhooks: body, signature, and the state of a delivery after an attempt."""

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

# The longest pause that a receiver may ask for.
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
    """How often a message is tried, and the waits between attempts. One attempt ends after
    `attempt_seconds`. A policy that `insists` also repeats what a receiver refused."""

    attempts: int
    backoff: Backoff = _BACKOFF
    attempt_seconds: float = 25.0
    insists: bool = False


@dataclass(frozen=True)
class Delivery:
    """The state of a message after `attempts` attempts; a pending one is tried again after its
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
    """The state of a message after this attempt, its `attempts`-th. Failures are values; an answer
    of None is an accepted e-mail."""
    try:
        async with asyncio.timeout(patience.attempt_seconds):
            answer = await sending
        if answer is None:
            return Delivery(DeliveryStatus.SENT, attempts)
        return after_answer(answer, attempts, patience)
    except TimeoutError:
        error = TransientError(f"The receiver did not answer within {patience.attempt_seconds:g} s")
    except AutomationError as refusal:
        error = refusal
    except Exception as bug:  # noqa: BLE001  a bug in one delivery does not stop the others
        error = TransientError(f"A bug: {type(bug).__name__}")
    return after_error(error, attempts, patience)


def after_answer(answer: WebhookAnswer, attempts: int, patience: DeliveryPolicy) -> Delivery:
    if 200 <= answer.status < 300:
        return Delivery(DeliveryStatus.SENT, attempts, answer.status, answer.text)
    error = f"The receiver answered {answer.status}"
    if not (patience.insists or is_transient_status(answer.status)):
        return Delivery(DeliveryStatus.FAILED, attempts, answer.status, answer.text, error)
    asked = answer.retry_after_seconds
    return _pending(
        Delivery(DeliveryStatus.PENDING, attempts, answer.status, answer.text, error),
        patience,
        asked,
    )


def after_error(error: AutomationError, attempts: int, patience: DeliveryPolicy) -> Delivery:
    if not isinstance(error, TransientError):
        return Delivery(DeliveryStatus.FAILED, attempts, error=sentence_of(error))
    pending = Delivery(DeliveryStatus.PENDING, attempts, error=sentence_of(error))
    return _pending(pending, patience, error.retry_after_seconds)


def _pending(delivery: Delivery, patience: DeliveryPolicy, asked_seconds: float | None) -> Delivery:
    """With its pause; failed after the last attempt."""
    if delivery.attempts >= patience.attempts:
        return replace(delivery, status=DeliveryStatus.FAILED)
    own = patience.backoff.delay(delivery.attempts, Random())
    pause = min(max(own, asked_seconds or 0.0), LONGEST_PAUSE_SECONDS)
    return replace(delivery, pause_seconds=pause)


class WebhookSender(Protocol):
    async def send(self, url: str, body: bytes, headers: Mapping[str, str]) -> WebhookAnswer:
        """The receiver's answer to this POST, whatever its status: one attempt, which follows 307
        and 308.

        TransientError: no answer this time. PermanentError: the address, or a redirect of it, must
        not be called. No text contains more of the address than its origin.
        """
        ...


def body_of(payload: Mapping[str, object]) -> bytes:
    """The same bytes at every attempt, whatever order the database gives the keys."""
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()


def mac_of(secret: str, signed: bytes) -> str:
    return hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


def mac_of_moment(secret: str, body: bytes, moment: str) -> str:
    """The time is signed too, so that a receiver can reject an old message."""
    return mac_of(secret, f"{moment}.".encode() + body)


def signature(secret: str, body: bytes, unix_seconds: int) -> str:
    return f"t={unix_seconds},v1={mac_of_moment(secret, body, str(unix_seconds))}"


def signed_headers(
    event: str, delivery: str, body: bytes, secret: str | None, unix_seconds: int
) -> dict[str, str]:
    """`delivery` identifies the message at every attempt."""
    headers = {
        "Content-Type": "application/json",
        "X-Automation-Event": event,
        "X-Automation-Delivery": delivery,
    }
    if secret:
        headers["X-Automation-Signature"] = signature(secret, body, unix_seconds)
    return headers
