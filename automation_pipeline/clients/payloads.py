"""Parts of payloads that several providers share: lenient fields, JSON without NUL, and refusals."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from math import isfinite
from typing import Annotated, TypeAlias

from pydantic import BeforeValidator, JsonValue, TypeAdapter, ValidationError

MAX_MESSAGE_LENGTH = 500
MAX_CODE_LENGTH = 100

# PostgreSQL stores the character NUL neither in text nor in JSON. After an odd number of
# backslashes, `u0000` is ordinary text.
_ESCAPED_NUL = re.compile(rb"(?<!\\)((?:\\\\)*)\\u0000")
_MESSAGE_FIELDS = ("detail", "message", "error", "error_message", "reason", "msg")
_CODE_FIELDS = ("code", "status", "type")
_NESTED_FIELDS = ("detail", "error")
_JSON: TypeAdapter[JsonValue] = TypeAdapter(JsonValue)


def without_nul(body: bytes) -> bytes:
    """The JSON document without NUL characters in its strings."""
    # The membership test is cheap; the expression tries every backslash of the body.
    return _ESCAPED_NUL.sub(rb"\1", body) if rb"\u0000" in body else body


def text_or_none(value: object) -> object:
    """For a field that is only recorded: a value of another type counts as missing."""
    return (value.strip() or None) if isinstance(value, str) else None


def number_or_none(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if isfinite(value) else None
    except OverflowError:  # a JSON integer can exceed every float
        return None


LenientText: TypeAlias = Annotated[str | None, BeforeValidator(text_or_none)]
LenientNumber: TypeAlias = Annotated[float | None, BeforeValidator(number_or_none)]


@dataclass(frozen=True)
class ProviderRefusal:
    """The status of a refused call, with the code and message of its body where it has them."""

    status: int
    code: str | None = None
    message: str | None = None

    def sentence(self, failure: str) -> str:
        parts = [f"{failure} status={self.status}"]
        parts += [f"code={self.code}"] if self.code else []
        parts += [f"provider_message={self.message}"] if self.message else []
        return " ".join(parts)


def parse_refusal(status: int, body: bytes, secret: str) -> ProviderRefusal:
    """Code and message are one line each; `secret` is masked in case the provider repeats it."""
    try:
        document = _JSON.validate_json(without_nul(body))
    except ValidationError:
        return ProviderRefusal(status)

    def masked(text: str | None, max_length: int) -> str | None:
        return text and " ".join(text.replace(secret, "***").split())[:max_length]

    return ProviderRefusal(
        status,
        code=masked(_first_text(document, _CODE_FIELDS), MAX_CODE_LENGTH),
        message=masked(_first_text(document, _MESSAGE_FIELDS), MAX_MESSAGE_LENGTH),
    )


def _first_text(value: JsonValue, names: Iterable[str]) -> str | None:
    """The first text under one of the names, outer levels first. Of a list, only the first element
    counts."""
    if isinstance(value, list):
        value = value[0] if value else None
    if not isinstance(value, dict):
        return None
    texts = (text for name in names if isinstance(text := value.get(name), str) and text.strip())
    inner = (text for name in _NESTED_FIELDS if (text := _first_text(value.get(name), names)))
    return next(chain(texts, inner), None)
