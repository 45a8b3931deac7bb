"""What this process has counted since it was last asked; `storage.measures` adds up all processes."""

import threading
from collections.abc import Mapping
from functools import lru_cache


class Meter:
    """Threads may count side by side."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], float] = {}
        self._lock = threading.Lock()

    def count(self, name: str, amount: float = 1, /, **labels: str) -> None:
        with self._lock:
            self._add((name, _written(tuple(labels.items()))), amount)

    def drain(self) -> dict[tuple[str, str], float]:
        """Amounts by name and labels, which begin again at nothing."""
        with self._lock:
            drained, self._counts = self._counts, {}
        return drained

    def put_back(self, drained: Mapping[tuple[str, str], float]) -> None:
        """What could not be handed on."""
        with self._lock:
            for key, amount in drained.items():
                self._add(key, amount)

    def _add(self, key: tuple[str, str], amount: float) -> None:
        self._counts[key] = self._counts.get(key, 0.0) + amount


@lru_cache(maxsize=1024)
def _written(labels: tuple[tuple[str, str], ...]) -> str:
    """As Prometheus writes them, in the order of their names."""
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in sorted(labels))


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
