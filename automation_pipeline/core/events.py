"""An event as it leaves us: written by `storage.outbox` in the business transaction, relayed after it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class Event:
    """`key` makes the event unique for its tenant: writing it twice is writing it once."""

    tenant_id: str
    key: str
    name: str
    producer: str
    correlation_id: str
    occurred_at: datetime
    payload: Mapping[str, object]
