"""What the metrics page holds: numbers with labels, and spreads of numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Sample:
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True)
class Gauge:
    """A counter is only ever raised; its name ends in `_total`."""

    name: str
    words: str
    samples: Sequence[Sample]
    kind: Literal["gauge", "counter"] = "gauge"


@dataclass(frozen=True)
class Histogram:
    """`counts` are cumulative: how many are at most each of `bounds`, and last how many there are."""

    name: str
    words: str
    bounds: Sequence[float]
    counts: Sequence[int]
    total: float


def single(name: str, words: str, value: float) -> Gauge:
    return Gauge(name, words, (Sample({}, value),))
