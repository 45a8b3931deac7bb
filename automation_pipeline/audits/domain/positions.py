"""What is wrong with the positions of steps that someone gave: they are unique and go from 1 to n. So a single step
can only go behind the others."""

from collections import Counter
from collections.abc import Collection, Iterable
from typing import cast

from automation_pipeline.core.errors import InvalidInputError

Fault = tuple[str, str]

MUST_BE_UNIQUE = "Step positions must be unique"


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
        faults.append(("steps", f"{MUST_BE_UNIQUE}: {_listed(doubled)} given more than once"))
    if missing:
        faults.append(("steps", f"Step positions must be 1 to {count} without gaps: {_listed(missing)} missing"))
    return tuple(faults)


def free_positions(taken: Collection[int]) -> list[int]:
    """Where one more step leaves no gap: behind the last, or in a gap that there is."""
    return [position for position in range(1, len(taken) + 2) if position not in taken]


def check_free(position: int, taken: Collection[int]) -> None:
    free = free_positions(taken)
    if position not in free:
        why = "is already taken" if position in taken else "would leave a gap"
        sentence = f"Position {position} {why}. Available positions: {_listed(free)}"
        raise InvalidInputError(sentence, (("position", sentence),))


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
