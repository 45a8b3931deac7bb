"""Webhooks, whatever they tell: who carries them, the bytes of a body, what signs them. See `delivery` beside it."""

import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Protocol

from automation_pipeline.core.delivery import Answer


class WebhookSender(Protocol):
    async def send(self, url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """What the receiver said to this POST, whatever its status: one attempt, with 307 and 308 followed.

        TransientError: no answer this time. PermanentError: the address, or one that it leads to, is not called. No
        text holds any part of the address but its origin.
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


def signed_headers(event: str, delivery: str, body: bytes, secret: str | None, unix_seconds: int) -> dict[str, str]:
    """`delivery` names the message, and stays the same however often it is sent."""
    headers = {
        "Content-Type": "application/json",
        "X-Automation-Event": event,
        "X-Automation-Delivery": delivery,
    }
    if secret:
        headers["X-Automation-Signature"] = signature(secret, body, unix_seconds)
    return headers
