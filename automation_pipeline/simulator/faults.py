"""Fault rules of `/_sim/faults`: their parsing, and the calls to which they apply."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from random import Random
from typing import Any, cast

from automation_pipeline.simulator.endpoint import Endpoint

# These send half of the body. Then the connection ends, or stays silent.
BROKEN_OFF = (
    "cut_short",
    "stalled",
)
MODEL_BODIES = (
    "content_not_json",
    "content_reasoned",
    "content_wrong_enum",
    "content_missing_field",
    "content_cut",
    "refusal",
)
THROTTLED = "throttled"
SPECIAL_BODIES = {**dict.fromkeys(MODEL_BODIES, "a language model"), THROTTLED: "a shop"}
BODIES = (
    "truncated",
    *BROKEN_OFF,
    "not_json",
    "wrong_types",
    "empty",
    "success_false",
    *SPECIAL_BODIES,
)
MAX_PAD_BYTES = 1024**3
JSON_BODIES = ("wrong_types", "success_false")


class BadRequestError(Exception):
    """A control request is invalid. The message is one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRule:
    """A `body` corrupts the real answer, and a `status` without a `body` replaces it. The answer is then padded with
    `pad_bytes` zeros and sent over `trickle_seconds`.

    A call that hangs or is dropped does not do its work, unless the rule says `after`: then only the
    answer is lost. A rule applies if `first`, `every` and `probability` all allow it. It counts the
    calls that reach it; a call to which an earlier rule applies does not.
    """

    route: str
    item: str | None = None
    status: int | None = None
    retry_after: str | float | None = None
    latency_seconds: float = 0.0
    hang: bool = False
    drop: bool = False
    after: bool = False
    body: str | None = None
    pad_bytes: int = 0
    trickle_seconds: float = 0.0
    first: int | None = None
    every: int = 1
    probability: float = 1.0

    @property
    def has_effect(self) -> bool:
        return bool(
            self.status or self.retry_after is not None or self.body or self.latency_seconds
        ) or (self.gives_no_answer or self.is_stretched)

    @property
    def gives_no_answer(self) -> bool:
        return self.hang or self.drop

    @property
    def is_stretched(self) -> bool:
        return bool(self.pad_bytes or self.trickle_seconds)


def _number(low: float, high: float) -> Callable[[object], bool]:
    return lambda value: (
        isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high
    )


def _whole(low: int, high: int) -> Callable[[object], bool]:
    return lambda value: (
        isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
    )


def _status(value: object) -> bool:
    return _whole(200, 599)(value) and value not in {204, 304}


def _boolean(value: object) -> bool:
    return isinstance(value, bool)


def _header_value(value: object) -> bool:
    return _number(0, 1e6)(value) or (
        isinstance(value, str) and value.isascii() and value.isprintable()
    )


CHECKS: dict[str, tuple[Callable[[object], bool], str]] = {
    "route": (lambda value: isinstance(value, str), "the name of a route"),
    "item": (lambda value: isinstance(value, str), "a text"),
    "status": (_status, "a whole number from 200 to 599, without 204 and 304, which have no body"),
    "retry_after": (_header_value, "a number of seconds or a printable ASCII text"),
    "latency_seconds": (_number(0, 3600), "a number from 0 to 3600"),
    "hang": (_boolean, "true or false"),
    "drop": (_boolean, "true or false"),
    "after": (_boolean, "true or false"),
    "body": (lambda value: value in BODIES, f"one of {', '.join(BODIES)}"),
    "pad_bytes": (_whole(0, MAX_PAD_BYTES), f"a whole number from 0 to {MAX_PAD_BYTES}"),
    "trickle_seconds": (_number(0, 3600), "a number from 0 to 3600"),
    "first": (_whole(1, 10**9), "a whole number from 1"),
    "every": (_whole(1, 10**9), "a whole number from 1"),
    "probability": (_number(0, 1), "a number from 0 to 1"),
}
assert set(CHECKS) == {field.name for field in fields(FaultRule)}  # noqa: S101 - a table that must be complete


def read_rules(posted: object, endpoints: Mapping[str, Endpoint]) -> list[FaultRule]:
    """One rule or a list of rules. If one of them is invalid, none applies."""
    rules = cast("list[object]", posted) if isinstance(posted, list) else [posted]
    return [_read(rule, endpoints) for rule in rules]


def _read(posted: object, endpoints: Mapping[str, Endpoint]) -> FaultRule:
    if not isinstance(posted, dict):
        raise BadRequestError("A fault rule must be a JSON object.")
    given = cast("dict[str, Any]", posted)  # Any: each value is checked just below
    for name, value in given.items():
        if name not in CHECKS:
            raise BadRequestError(
                f"A fault rule has no field {name!r}; it has {', '.join(CHECKS)}."
            )
        good, wanted = CHECKS[name]
        if not good(value):
            raise BadRequestError(f"The fault field {name!r} must be {wanted}.")
    if given.get("route") not in endpoints:
        raise BadRequestError(f"A fault rule needs a 'route', one of {', '.join(endpoints)}.")
    rule = FaultRule(**given)
    _check_whole(rule, endpoints[rule.route])
    return rule


def _check_whole(rule: FaultRule, endpoint: Endpoint) -> None:
    if not rule.has_effect:
        raise BadRequestError(
            "A fault rule needs a status, retry_after, latency_seconds, hang, drop, body, pad_bytes or trickle_seconds."
        )
    if rule.gives_no_answer and (
        rule.status or rule.body or rule.retry_after is not None or (rule.hang and rule.drop)
    ):
        raise BadRequestError(
            "A fault rule cannot both answer and not answer: hang and drop stand alone."
        )
    if rule.after and not rule.gives_no_answer:
        raise BadRequestError("Only a call that hangs or is dropped can do so 'after' its work.")
    if rule.is_stretched and (rule.gives_no_answer or rule.body in BROKEN_OFF):
        raise BadRequestError("A fault rule cannot both break off an answer and stretch it.")
    if rule.pad_bytes and endpoint.answers_json:
        raise BadRequestError(
            f"Only audio can be padded, and {rule.route} answers with JSON: no 'pad_bytes' there."
        )
    _check_body(rule, endpoint)


def _check_body(rule: FaultRule, endpoint: Endpoint) -> None:
    if rule.body in SPECIAL_BODIES and rule.body not in {
        *endpoint.corruptions,
        *endpoint.replacements,
    }:
        raise BadRequestError(
            f"The body {rule.body!r} is for {SPECIAL_BODIES[rule.body]}, not for {rule.route}."
        )
    if rule.body in JSON_BODIES and not endpoint.answers_json:
        raise BadRequestError(
            f"The body {rule.body!r} is for JSON, and {rule.route} does not answer with JSON."
        )


@dataclass
class _Entry:
    rule: FaultRule
    index: int
    reached: int = 0

    def applies(self, seed: int, item: str, call_number: int) -> bool:
        rule = self.rule
        self.reached += 1
        if self.reached % rule.every or (rule.first is not None and self.reached > rule.first):
            return False
        return (
            rule.probability == 1
            or Random(f"{seed}/{self.index}/{item}/{call_number}").random() < rule.probability
        )


class Faults:
    """The rules in the order in which they were posted; the first that applies wins. The seed, the index of the rule,
    the item and the number of the item's call determine whether a rule with a probability applies. The order
    of concurrent calls has no effect."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._entries: list[_Entry] = []
        # Set by clear() to release the calls that hang because of the earlier rules.
        self.cleared = asyncio.Event()

    def add(self, rules: list[FaultRule]) -> int:
        """Return the number of rules."""
        for rule in rules:
            self._entries.append(_Entry(rule, len(self._entries)))
        return len(self._entries)

    def clear(self) -> None:
        """Remove all rules. Hanging calls end without an answer."""
        self._entries.clear()
        self.cleared.set()
        self.cleared = asyncio.Event()

    def matching_rule(self, route: str, item: str, call_number: int) -> FaultRule | None:
        for entry in self._entries:
            if (
                entry.rule.route == route
                and entry.rule.item in {None, item}
                and entry.applies(self._seed, item, call_number)
            ):
                return entry.rule
        return None
