"""What may be written down: secrets and personal data are masked, counters are not, and nothing is endless. What a key
says about its value is in `sensitive_keys`."""

import re
from collections.abc import Iterable, Mapping, Set
from datetime import date, datetime
from enum import Enum
from itertools import islice
from math import isfinite
from typing import cast

from automation_pipeline.core.sensitive_keys import is_counter, is_sensitive

MASK = "[masked]"
CUT = "[cut]"
DEEPEST = 6
LONGEST = 2000
MOST_ITEMS = 50
MOST_KEYS = 200
CUT_KEYS = "_cut_keys"
# A text that is longer is cut before it is looked through.
_LONGEST_READ = 50_000
_MOST_BITS = 256

_HEADER = re.compile(
    r"(?i)(?<![\w-])((?:proxy-)?authorization|(?:set-)?cookie)([\"']?\s*[:=]\s*+[\"']?+)(?!\[masked\])[^\r\n\"']+"
)
_BEARER = re.compile(r"(?i)((?:\bbearer\s+)+)[^\s\"',;\[\]]+")
_USER = re.compile(r"(?i)\b([a-z][a-z0-9+.-]{1,30}://)(?!\[masked\]@)[^\s/?#\"'<>]*@")
_QUERY = re.compile(r"(?i)\b((?:https?|wss?)://[^\s?#\"'<>]*\?)(?!\[masked\])[^\s#\"'<>]+")
_LABEL = re.compile(r"(?<![\w-])([A-Za-z][\w-]{0,100})\\?[\"']?\s{0,3}[:=]\s{0,3}\\?")
_LABELLED = re.compile(r"\"[^\"\r\n]+\"?|'[^'\r\n]+'?|[^\s\"'&,;<>(){}\[\]]+")
_EMAIL = re.compile(r"(?<![\w.+%-])[\w.+%-]+@[\w-]+(?:\.[\w-]+)+")
_PHONE = re.compile(
    r"(?<![\w+.-])(?:0[1-9]([ .-]?)\d{2}(?:\1\d{2}){3}|(?:\+|00)[1-9](?:[ ./()-]{0,2}\d){6,14})(?![\w-]|\.\d)"
)
_NAMES_OF_QUERIES = frozenset({"key", "sig"})


def masked(value: object) -> object:
    """As JSON can hold it. Masking what is masked changes nothing, and there is no value that it fails on."""
    return _value(value, 0, frozenset())


def masked_document(document: Mapping[str, object]) -> dict[str, object]:
    found = masked(document)
    return cast("dict[str, object]", found) if isinstance(found, dict) else {}


def masked_text(text: str, longest: int = LONGEST) -> str:
    for _ in range(8):  # cutting may uncover something, as a number that is no longer part of a word
        seen = text
        text = _cut(_hide(text[:_LONGEST_READ]), longest)
        if text == seen:
            break
    return text


def _value(value: object, depth: int, above: Set[int]) -> object:
    try:
        return _known(value, depth, above)
    except Exception:  # noqa: BLE001  whatever a stranger's object does when it is looked at, the line is written
        return f"[{type(value).__name__}]"


def _known(value: object, depth: int, above: Set[int]) -> object:
    if isinstance(value, Enum):
        return _known(cast("object", value.value), depth, above)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Mapping | list | tuple | Set):
        return _container(cast("Mapping[object, object] | Iterable[object]", value), depth, above)
    return _number(value) if isinstance(value, int | float) else masked_text(_text(value))


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


def _container(value: Mapping[object, object] | Iterable[object], depth: int, above: Set[int]) -> object:
    if depth >= DEEPEST or id(value) in above:
        return CUT
    above = above | {id(value)}
    if isinstance(value, Mapping):
        return _document(cast("Mapping[object, object]", value), depth, above)
    items = list(islice(value, MOST_ITEMS + 1))
    kept = items if len(items) <= MOST_ITEMS else [*items[: MOST_ITEMS - 1], CUT]
    return [_value(item, depth + 1, above) for item in kept]


def _document(
    document: Mapping[object, object] | Mapping[str, object], depth: int, above: Set[int]
) -> dict[str, object]:
    entries = list(islice(document.items(), MOST_KEYS + 1))
    if len(entries) > MOST_KEYS:
        entries = [*entries[: MOST_KEYS - 1], (CUT_KEYS, len(document) - MOST_KEYS + 1)]
    return dict(_entry(key, value, depth, above) for key, value in entries)


def _entry(key: object, value: object, depth: int, above: Set[int]) -> tuple[str, object]:
    name = str(_value(key, depth, above))
    return name, MASK if _is_hidden(name, value) else _value(value, depth + 1, above)


def _is_hidden(name: str, value: object) -> bool:
    """What is empty, or only yes or no, is nobody's secret; a number under a counter's name is a count."""
    if value is None or isinstance(value, bool) or value == "" or not is_sensitive(name):
        return False
    return not (is_counter(name) and _counts(value))


def _counts(value: object) -> bool:
    """A number, or a document of numbers."""
    if isinstance(value, Mapping):
        entries = cast("Mapping[object, object]", value).items()
        return all(_counts(each) and (is_counter(str(key)) or not is_sensitive(str(key))) for key, each in entries)
    if isinstance(value, int | float):
        return isinstance(_number(value), int | float)
    return value is None or value == CUT


def _hide(text: str) -> str:
    text = _BEARER.sub(rf"\1{MASK}", text)
    text = _HEADER.sub(rf"\1\2{MASK}", text)
    text = _QUERY.sub(rf"\1{MASK}", text)
    text = _USER.sub(rf"\1{MASK}@", text)
    text = _hide_labelled(text)
    text = _EMAIL.sub(MASK, text)
    return _PHONE.sub(MASK, text)


def _hide_labelled(text: str) -> str:
    """Values after their names, as in `password=...` and `"api_key": "..."`."""
    pieces: list[str] = []
    done = 0
    for label in _LABEL.finditer(text):
        value = _LABELLED.match(text, label.end())
        if label.start() >= done and value and _is_hidden_after(label, value[0]):
            quote = value[0][0] if value[0][0] in "\"'" else ""
            pieces += [text[done : label.end()], quote, MASK, quote]
            done = value.end()
    return "".join([*pieces, text[done:]])


def _is_hidden_after(label: re.Match[str], value: str) -> bool:
    name = label[1]
    if name.lower() in _NAMES_OF_QUERIES:
        return label.string[max(label.start() - 1, 0)] in "?&"
    return is_sensitive(name) and not (is_counter(name) and value.replace(".", "").isdecimal())


def _cut(text: str, longest: int) -> str:
    """What ends in the middle of a mask ends before it."""
    if len(text) <= longest:
        return text
    kept = text[: longest - 1]
    opened = kept.rfind("[")
    if opened >= 0 and MASK.startswith(kept[opened:]) and kept[opened:] != MASK:
        kept = kept[:opened]
    return kept + "…"
