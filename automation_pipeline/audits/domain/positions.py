"""What is wrong with the positions of steps that someone gave: they are unique and go from 1 to n."""

from collections import Counter
from collections.abc import Iterable
from typing import cast

Fault = tuple[str, str]


def position_faults(steps: object) -> tuple[Fault, ...]:
    """Complaints about the field `steps`; none where a position cannot be read, which is complained about elsewhere."""
    positions = _positions(steps)
    count = len(positions)
    if positions and sorted(positions) == list(range(count)):
        return (("steps", f"Step positions count from 1, and these count from 0: give 1 to {count}"),)
    doubled = sorted(position for position, times in Counter(positions).items() if times > 1)
    missing = [position for position in range(1, count + 1) if position not in set(positions)]
    faults: list[Fault] = []
    if doubled:
        faults.append(("steps", f"Step positions must be unique: {_listed(doubled)} given more than once"))
    if missing:
        faults.append(("steps", f"Step positions must be 1 to {count} without gaps: {_listed(missing)} missing"))
    return tuple(faults)


def _positions(steps: object) -> list[int]:
    """None at all unless every step has one that is an integer."""
    if not isinstance(steps, list):
        return []
    given = [
        cast("dict[str, object]", step).get("position") if isinstance(step, dict) else None
        for step in cast("list[object]", steps)
    ]
    whole = [position for position in given if type(position) is int]
    return whole if len(whole) == len(given) else []


def _listed(positions: Iterable[int]) -> str:
    return ", ".join(str(position) for position in positions)
