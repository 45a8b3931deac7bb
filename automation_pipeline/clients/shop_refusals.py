"""What an answer of the shop means that is not, or not only, data: how full the bucket is, and which failure it is."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from pydantic import JsonValue, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from automation_pipeline.clients.elevenlabs_payloads import NotedNumber, NotedText
from automation_pipeline.clients.shop_payloads import Wire
from automation_pipeline.pricing.domain.failures import Failure, Signal, classified
from automation_pipeline.pricing.domain.retrying import throttle_seconds
from automation_pipeline.pricing.domain.shop_calls import Bucket

LONGEST_SAID = 300
LONGEST_ID = 200
MOST_POINTS = 1e9
SLOWEST_RATE = 0.01

_MOST_COMPLAINTS = 3
_THROTTLED, _DENIED = "THROTTLED", "ACCESS_DENIED"
# With these the shop looked at nothing but the question: it has written nothing.
_BEFOREHAND = frozenset({_THROTTLED, _DENIED, "SHOP_INACTIVE", "MAX_COST_EXCEEDED"})
_COSTS = frozenset({"inventoryItem", "unitCost"})
_ADVICE = {
    401: " (check SHOP_API_TOKEN)",
    403: " (check the scopes of SHOP_API_TOKEN)",
    404: " (check SHOP_API_BASE_URL and SHOP_API_VERSION)",
}

Shown: TypeAlias = Callable[[str], str]


@dataclass(frozen=True)
class Heard:
    """One answer of the shop. No `body`: it was bigger than we read."""

    status: int
    body: bytes | None
    retry_after_seconds: float | None
    request_id: str | None


def _or_none(value: object, read: ValidatorFunctionWrapHandler) -> object:
    try:
        return read(value)
    except ValidationError:
        return None


class ThrottlePayload(Wire):
    maximum_available: NotedNumber = None
    currently_available: NotedNumber = None
    restore_rate: NotedNumber = None


class CostPayload(Wire):
    requested_query_cost: NotedNumber = None
    throttle_status: Annotated[ThrottlePayload | None, WrapValidator(_or_none)] = None

    def to_bucket(self) -> Bucket | None:
        """None for numbers that no bucket has: nobody could keep a pace by them."""
        told = self.throttle_status
        if told is None or told.maximum_available is None or told.currently_available is None:
            return None
        maximum, available, rate = told.maximum_available, told.currently_available, told.restore_rate or 0.0
        is_one = 0 < maximum <= MOST_POINTS and abs(available) <= MOST_POINTS and SLOWEST_RATE <= rate <= MOST_POINTS
        return Bucket(min(available, maximum), maximum, rate) if is_one else None


class ExtensionsPayload(Wire):
    cost: Annotated[CostPayload | None, WrapValidator(_or_none)] = None


class Envelope(Wire):
    """What stands around every answer; whatever is odd in it leaves the rest readable."""

    data: JsonValue = None
    errors: JsonValue = None
    extensions: Annotated[ExtensionsPayload | None, WrapValidator(_or_none)] = None

    @property
    def cost(self) -> CostPayload:
        return (self.extensions and self.extensions.cost) or CostPayload()

    @property
    def bucket(self) -> Bucket | None:
        return self.cost.to_bucket()

    @property
    def wait_seconds(self) -> float | None:
        """Until the bucket holds what the question asks for."""
        bucket, requested = self.bucket, self.cost.requested_query_cost
        if bucket is None or requested is None:
            return None
        return throttle_seconds(requested, bucket.available, bucket.restore_rate)


class _CodePayload(Wire):
    code: NotedText = None


class ErrorPayload(Wire):
    message: NotedText = None
    extensions: Annotated[_CodePayload | None, WrapValidator(_or_none)] = None
    path: Annotated[list[str | int] | None, WrapValidator(_or_none)] = None

    @property
    def code(self) -> str | None:
        return self.extensions.code if self.extensions else None

    @property
    def hides_a_cost(self) -> bool:
        return self.code == _DENIED and bool(self.path) and self.path[-1] in _COSTS


def envelope_of(body: bytes | None) -> Envelope | None:
    try:
        return Envelope.model_validate_json(body or b"")
    except ValidationError:
        return None


def refused_status(heard: Heard, envelope: Envelope | None, shown: Shown) -> Failure:
    said = _said(envelope.errors, shown) if envelope else ""
    message = f"The shop answered {heard.status}{': ' if said else ''}{said}{_ADVICE.get(heard.status, '')}."
    return classified(Signal(status=heard.status), message, heard.retry_after_seconds)


def refused_question(heard: Heard, envelope: Envelope, shown: Shown, *, writes: bool) -> Failure | None:
    """None where the answer complains of nothing."""
    if not envelope.errors:
        return None
    codes = [error.code.upper() for error in _listed(envelope.errors) if error.code]
    code = _THROTTLED if _THROTTLED in codes else next(iter(codes), None)
    signal = Signal(code=code, lost=writes and _may_have_written(envelope, code))
    if code == _THROTTLED:
        wait = envelope.wait_seconds or heard.retry_after_seconds
        return classified(signal, "The shop is busy: it holds us back for a while.", wait)
    said = _said(envelope.errors, shown)
    return classified(signal, f"The shop answered with an error: {said or 'it says no more'}.")


def hides_only_costs(envelope: Envelope) -> bool:
    """All else in the data may be read: to see what things cost the shop is a right of its own."""
    errors = _listed(envelope.errors)
    is_all = isinstance(envelope.errors, list) and len(errors) == len(envelope.errors)
    return is_all and all(error.hides_a_cost for error in errors)


def _may_have_written(envelope: Envelope, code: str | None) -> bool:
    """A question that is refused before anything is done has no data at all, or null for what was asked."""
    data = envelope.data
    if isinstance(data, dict) and any(value is not None for value in data.values()):
        return True
    return "data" in envelope.model_fields_set and code not in _BEFOREHAND


def _listed(errors: JsonValue) -> list[ErrorPayload]:
    """Shopify's usual list; of another make there are no codes."""
    found: list[ErrorPayload] = []
    for error in errors if isinstance(errors, list) else []:
        try:
            found.append(ErrorPayload.model_validate(error))
        except ValidationError:
            continue
    return found


def _said(errors: JsonValue, shown: Shown) -> str:
    return shown("; ".join(_texts(errors)[:_MOST_COMPLAINTS])).rstrip(".")


def _texts(errors: JsonValue) -> list[str]:
    """`"text"`, `{"field": ["text"]}`, `["text"]` and `[{"message": "text"}]` are all met."""
    if isinstance(errors, str):
        return [errors]
    if isinstance(errors, dict):
        return [": ".join(filter(None, (field, ", ".join(_plain(said))))) for field, said in errors.items()]
    if isinstance(errors, list):
        messages = [error.message for error in _listed(errors) if error.message]
        return messages or _plain(errors)
    return []


def _plain(said: JsonValue) -> list[str]:
    return [text for text in (said if isinstance(said, list) else [said]) if isinstance(text, str)]
