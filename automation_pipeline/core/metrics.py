"""Counters of a process since the last flush, and durations as histograms."""

import threading
from collections.abc import Mapping
from functools import lru_cache


class Meter:
    """Safe to use from several threads."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], float] = {}
        self._lock = threading.Lock()

    def count(self, name: str, amount: float = 1, /, **labels: str) -> None:
        with self._lock:
            self._add((name, _label_text(tuple(labels.items()))), amount)

    def drain(self) -> dict[tuple[str, str], float]:
        """Return the amounts by name and labels, and reset them to zero."""
        with self._lock:
            drained, self._counts = self._counts, {}
        return drained

    def put_back(self, drained: Mapping[tuple[str, str], float]) -> None:
        """Add drained amounts that could not be written."""
        with self._lock:
            for key, amount in drained.items():
                self._add(key, amount)

    def _add(self, key: tuple[str, str], amount: float) -> None:
        self._counts[key] = self._counts.get(key, 0.0) + amount


@lru_cache(maxsize=1024)
def _label_text(labels: tuple[tuple[str, str], ...]) -> str:
    """The labels in the format of Prometheus, ordered by name."""
    escapes = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
    return ",".join(f'{name}="{value.translate(escapes)}"' for name, value in sorted(labels))


# From the duration of a tick to that of the longest work.
BOUNDS_MS = (1_000, 5_000, 15_000, 60_000, 300_000, 900_000, 3_600_000, 14_400_000)
_INFINITY = "+Inf"
BUCKETS = (*(str(float(bound)) for bound in BOUNDS_MS), _INFINITY)


def bucket_of(milliseconds: float) -> str:
    return next((str(float(bound)) for bound in BOUNDS_MS if milliseconds <= bound), _INFINITY)


def bucket_metric(histogram: str) -> str:
    """Each duration is counted in one bucket only."""
    return f"{histogram}_bucket"


def sum_metric(histogram: str) -> str:
    return f"{histogram}_sum"


def observe(meter: Meter, histogram: str, milliseconds: float) -> None:
    meter.count(bucket_metric(histogram), le=bucket_of(milliseconds))
    meter.count(sum_metric(histogram), milliseconds)
