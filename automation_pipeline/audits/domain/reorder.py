"""A new order of a configuration's steps."""

from collections import Counter
from collections.abc import Iterable, Sequence

from automation_pipeline.core.errors import InvalidInputError


def reordered(step_ids: Sequence[int], given: Sequence[int]) -> dict[int, int]:
    """The position, from 1, of every step in the order given. InvalidInputError unless each step is named once."""
    faults = {
        "missing": [step for step in step_ids if step not in set(given)],
        "not steps of this configuration": dict.fromkeys(step for step in given if step not in set(step_ids)),
        "given more than once": [step for step, times in Counter(given).items() if times > 1],
    }
    fields = tuple(("stepIds", f"{why}: {_listed(ids)}") for why, ids in faults.items() if ids)
    if fields:
        raise InvalidInputError("The new order must name every step once", fields)
    return {step: position for position, step in enumerate(given, start=1)}


def _listed(ids: Iterable[int]) -> str:
    return ", ".join(str(step) for step in ids)
