"""What no payload may hold, whatever its type: secrets in plain text, and what no database can keep."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import cast

from automation_pipeline.core.json_model import text_fault
from automation_pipeline.core.sensitive_keys import is_counter, is_sensitive
from automation_pipeline.org_jobs.domain.plain_secrets import looks_secret, named_beside, names_secret
from automation_pipeline.org_jobs.domain.secrets import HOW, REFERENCE_FAULT, is_meant_as_reference, reference_in

DEEPEST = 20
LONGEST_KEY = 200
PLAIN_SECRET = f"must not be written here: {HOW}"

Fault = tuple[str, str]


@dataclass(frozen=True)
class _Place:
    """Under a sensitive name everything is, however deep."""

    path: str
    name: str
    value: object
    is_sensitive: bool
    depth: int


def payload_faults(payload: Mapping[str, object]) -> list[Fault]:
    """Where and why, in order. No sentence holds a value."""
    return list(_faults(payload))


def _faults(payload: Mapping[str, object]) -> Iterator[Fault]:
    left = [_Place("", "", payload, is_sensitive=False, depth=0)]
    while left:
        place = left.pop()
        if reference_in(place.value) is not None:
            continue
        fault = _fault(place)
        if fault is not None:
            yield place.path, fault
        else:
            left.extend(reversed(list(_inside(place))))


def _fault(place: _Place) -> str | None:
    if place.depth > DEEPEST:
        return f"must not be nested more than {DEEPEST} deep"
    if len(place.name) > LONGEST_KEY:
        return f"has a name of more than {LONGEST_KEY} characters"
    if is_meant_as_reference(place.value):
        return REFERENCE_FAULT
    if (place.is_sensitive and _says_something(place)) or _is_secret_text(place):
        return PLAIN_SECRET
    return _storage_fault(place)


def _says_something(place: _Place) -> bool:
    """What is empty, or only yes or no, is nobody's secret; a number under a counter's name is a count."""
    value = place.value
    if isinstance(value, bool) or value is None or value == "" or isinstance(value, Mapping | list | tuple):
        return False
    return not (isinstance(value, int | float) and is_counter(place.name))


def _is_secret_text(place: _Place) -> bool:
    text = place.value
    return isinstance(text, str) and (looks_secret(text) or bool(text and names_secret(place.name)))


def _storage_fault(place: _Place) -> str | None:
    if isinstance(place.value, float) and not isfinite(place.value):
        return "must be a finite number"
    texts = (place.name, place.value)
    return next((fault for text in texts if isinstance(text, str) and (fault := text_fault(text))), None)


def _inside(place: _Place) -> Iterable[_Place]:
    if isinstance(place.value, Mapping):
        document = {str(key): value for key, value in cast("Mapping[object, object]", place.value).items()}
        field, called = named_beside(document) or (None, "")
        for key, value in document.items():
            yield _within(place, key, called if key == field else key, value)
    elif isinstance(place.value, list | tuple):
        for number, value in enumerate(cast("list[object]", place.value)):
            yield _within(place, str(number), place.name, value)


def _within(place: _Place, step: str, name: str, value: object) -> _Place:
    path = f"{place.path}.{step[:LONGEST_KEY]}" if place.path else step[:LONGEST_KEY]
    return _Place(path, name, value, place.is_sensitive or is_sensitive(name), place.depth + 1)
