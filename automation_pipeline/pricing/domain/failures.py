"""What a failed call to the shop means: its kind, and whether another attempt can help. Decided once, here."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class FailureKind(StrEnum):
    RATE_LIMIT = "rate_limit"
    NETWORK = "network"
    SERVER = "server"
    VALIDATION = "validation"
    AUTHENTICATION = "authentication"
    AUTHORIZATION = "authorization"
    NOT_FOUND = "not_found"
    CONFLICT = "conflict"
    SHOP_CLOSED = "shop_closed"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"


RETRYABLE = frozenset({FailureKind.RATE_LIMIT, FailureKind.NETWORK, FailureKind.SERVER})
# The shop would refuse every other target for the same reason: nothing more is called.
CRITICAL = frozenset({FailureKind.AUTHENTICATION, FailureKind.SHOP_CLOSED})

PRICE_DRIFT = "CONFLICT_PRICE_DRIFT"

_STATUSES: Mapping[int, FailureKind] = {
    400: FailureKind.VALIDATION,
    401: FailureKind.AUTHENTICATION,
    402: FailureKind.SHOP_CLOSED,
    403: FailureKind.AUTHORIZATION,
    404: FailureKind.NOT_FOUND,
    408: FailureKind.NETWORK,
    409: FailureKind.CONFLICT,
    410: FailureKind.NOT_FOUND,
    422: FailureKind.VALIDATION,
    423: FailureKind.SHOP_CLOSED,
    429: FailureKind.RATE_LIMIT,
}
_CODES: Mapping[str, FailureKind] = {
    "429": FailureKind.RATE_LIMIT,
    "THROTTLED": FailureKind.RATE_LIMIT,
    "ECONNRESET": FailureKind.NETWORK,
    "ETIMEDOUT": FailureKind.NETWORK,
    "ENOTFOUND": FailureKind.NETWORK,
    "ECONNREFUSED": FailureKind.NETWORK,
    "INTERNAL_SERVER_ERROR": FailureKind.SERVER,
    "ACCESS_DENIED": FailureKind.AUTHORIZATION,
    "SHOP_INACTIVE": FailureKind.SHOP_CLOSED,
    "MAX_COST_EXCEEDED": FailureKind.VALIDATION,
    PRICE_DRIFT: FailureKind.CONFLICT,
}


@dataclass(frozen=True, kw_only=True)
class Signal:
    """What was seen of a failure. `retryable` is the word of one who knows better; `user_error` is a complaint about
    one variant in an answer that was otherwise well; `lost` is an answer that never came to a call that was sent."""

    status: int | None = None
    code: str | None = None
    retryable: bool | None = None
    user_error: bool = False
    lost: bool = False


@dataclass(frozen=True)
class Failure:
    """`outcome_unknown`: the price may have been written; it is read before anything else is tried."""

    kind: FailureKind
    message: str
    retryable: bool
    outcome_unknown: bool = False
    retry_after_seconds: float | None = None

    @property
    def is_critical(self) -> bool:
        return self.kind in CRITICAL and not self.retryable


def classified(signal: Signal, message: str, retry_after_seconds: float | None = None) -> Failure:
    kind = _kind(signal)
    return Failure(
        kind=kind,
        message=message,
        retryable=(kind in RETRYABLE) if signal.retryable is None else signal.retryable,
        outcome_unknown=signal.lost or kind is FailureKind.SERVER or signal.status == 408,
        retry_after_seconds=retry_after_seconds,
    )


def _kind(signal: Signal) -> FailureKind:
    code = (signal.code or "").upper()
    if signal.user_error:
        is_gone = code.endswith(("DOES_NOT_EXIST", "NOT_FOUND"))
        return FailureKind.NOT_FOUND if is_gone else FailureKind.VALIDATION
    if code in _CODES:
        return _CODES[code]
    if signal.status is None:
        return FailureKind.NETWORK if signal.lost else FailureKind.UNKNOWN
    if signal.status in _STATUSES:
        return _STATUSES[signal.status]
    return _of_family(signal.status // 100)


def _of_family(hundreds: int) -> FailureKind:
    return {4: FailureKind.VALIDATION, 5: FailureKind.SERVER}.get(hundreds, FailureKind.UNKNOWN)
