"""What may be written down: secrets and personal data are masked, counters are not, and nothing is endless. What a key
says about its value is in `sensitive_keys`, what is found inside a text in `sensitive_texts`."""

from collections.abc import Iterable, Mapping, Set
from datetime import date, datetime
from enum import Enum
from functools import lru_cache
from itertools import islice
from math import isfinite
from typing import cast

from automation_pipeline.core.sensitive_keys import is_counter, is_sensitive
from automation_pipeline.core.sensitive_texts import MASK, hide

CUT = "[cut]"
DEEPEST = 6
LONGEST = 2000
LONGEST_KEY = 200
MOST_ITEMS = 50
MOST_KEYS = 200
CUT_KEYS = "_cut_keys"
# Of one document, all its values together.
MOST_VALUES = 2000
MOST_TEXT = 64_000
# So much more than is kept is looked through, so that what stands at the end is recognised; what is at the very end
# of that may be half of something.
_BEYOND = 500
_HALF = 64
_MOST_BITS = 256
_MOST_COUNTS = 20


def masked(value: object) -> object:
    """As JSON can hold it. Masking what is masked changes nothing, and there is no value that it fails on."""
    return _Walk().value(value, 0)


def masked_document(document: Mapping[str, object]) -> dict[str, object]:
    found = masked(document)
    return cast("dict[str, object]", found) if isinstance(found, dict) else {}


def masked_text(text: str, longest: int = LONGEST) -> str:
    for _ in range(8):  # cutting may uncover something, as a number that is no longer part of a word
        seen = text
        text = hide(seen[: longest + _BEYOND])
        if len(seen) > longest + _BEYOND and not text.rstrip("\"'").endswith(MASK):
            text = _cut(text, max(len(text) - _HALF, 1))
        text = _cut(text, longest)
        if text == seen:
            break
    return text


class _Walk:
    """Through one value and all that is in it, until so many values or so much text have been seen."""

    def __init__(self) -> None:
        self._values = MOST_VALUES
        self._text = MOST_TEXT
        self._above: set[int] = set()

    def value(self, value: object, depth: int) -> object:
        if self._values <= 0 or self._text <= 0:
            return CUT
        self._values -= 1
        try:
            return self._known(value, depth)
        except Exception:  # noqa: BLE001  whatever a stranger's object does when it is looked at, the line is written
            return f"[{type(value).__name__}]"

    def _known(self, value: object, depth: int) -> object:
        if type(value) is str:
            return self._masked(value)
        if isinstance(value, Enum):
            return self._known(cast("object", value.value), depth)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, (int, float)):
            return _number(value)
        if isinstance(value, (dict, list, tuple, Mapping, Set)):
            return self._container(cast("Mapping[object, object] | Iterable[object]", value), depth)
        return self._masked(_text(value))

    def _masked(self, text: str, longest: int = LONGEST) -> str:
        found = masked_text(text, longest)
        self._text -= max(min(len(text), longest + _BEYOND), len(found))
        return found

    def _container(self, value: Mapping[object, object] | Iterable[object], depth: int) -> object:
        here = id(value)
        if depth >= DEEPEST or here in self._above:
            return CUT
        self._above.add(here)
        try:
            if isinstance(value, Mapping):
                return self._document(cast("Mapping[object, object]", value), depth)
            items = list(islice(value, MOST_ITEMS + 1))
            kept = items if len(items) <= MOST_ITEMS else [*items[: MOST_ITEMS - 1], CUT]
            return [self.value(item, depth + 1) for item in kept]
        finally:
            self._above.discard(here)

    def _document(self, document: Mapping[object, object], depth: int) -> dict[str, object]:
        entries = list(islice(document.items(), MOST_KEYS + 1))
        if len(entries) > MOST_KEYS:
            entries = [*entries[: MOST_KEYS - 1], (CUT_KEYS, len(document) - MOST_KEYS + 1)]
        found: dict[str, object] = {}
        for key, value in entries:
            name = self._name(key, depth)
            hidden = _is_hidden(name, value)
            self._values -= hidden
            found[name] = MASK if hidden else self.value(value, depth + 1)
        return found

    def _name(self, key: object, depth: int) -> str:
        if type(key) is str and len(key) <= LONGEST_KEY:
            name = _masked_name(key)
            self._text -= max(len(key), len(name))
            return name
        return self._masked(key if type(key) is str else str(self.value(key, depth)), LONGEST_KEY)


@lru_cache(maxsize=4096)
def _masked_name(key: str) -> str:
    return masked_text(key, LONGEST_KEY)


def _number(value: float) -> object:
    if isinstance(value, int):
        return int(value) if value.bit_length() <= _MOST_BITS else CUT
    return float(value) if isfinite(value) else str(float(value))


def _text(value: object) -> str:
    if isinstance(value, date | datetime):
        return value.isoformat()
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {value}"
    return f"[{type(value).__name__}]" if callable(value) or isinstance(value, bytes | bytearray) else str(value)


def _is_hidden(name: str, value: object) -> bool:
    """What is empty, cut, or only yes or no, is nobody's secret; a number under a counter's name is a count."""
    if value is None or isinstance(value, bool) or value in ("", CUT) or not is_sensitive(name):
        return False
    return not (is_counter(name) and _counts(value))


def _counts(value: object, depth: int = 0) -> bool:
    """A number, or a small document of numbers."""
    if isinstance(value, Mapping):
        entries = cast("Mapping[object, object]", value)
        return (
            depth < 2
            and len(entries) <= _MOST_COUNTS
            and all(
                _counts(each, depth + 1) and (is_counter(str(key)) or not is_sensitive(str(key)))
                for key, each in entries.items()
            )
        )
    if isinstance(value, int | float):
        return isinstance(_number(value), int | float)
    return value is None or value == CUT


def _cut(text: str, longest: int) -> str:
    """What ends in the middle of a mask ends before it."""
    if len(text) <= longest:
        return text
    kept = text[: longest - 1]
    opened = kept.rfind("[")
    if opened >= 0 and MASK.startswith(kept[opened:]) and kept[opened:] != MASK:
        kept = kept[:opened]
    return kept + "…"
