"""A new order of a configuration's steps."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated

from pydantic import Field

from automation_pipeline.audits.domain.body_values import SentId
from automation_pipeline.audits.domain.config_document import MOST_STEPS
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import JsonModel


class StepOrder(JsonModel):
    """As somebody sends it: the ids of all the configuration's steps."""

    step_ids: Annotated[tuple[SentId, ...], Field(min_length=1, max_length=MOST_STEPS)]


def reordered(step_ids: Sequence[int], given: Sequence[int]) -> dict[int, int]:
    """The position, from 1, of every step in the order given. InvalidInputError unless each step is named once."""
    known, named = set(step_ids), set(given)
    faults = {
        "missing": [step for step in step_ids if step not in named],
        "not steps of this configuration": dict.fromkeys(step for step in given if step not in known),
        "given more than once": [step for step, times in Counter(given).items() if times > 1],
    }
    fields = tuple(("stepIds", f"{why}: {_listed(ids)}") for why, ids in faults.items() if ids)
    if fields:
        raise InvalidInputError("The new order must name every step once", fields)
    return {step: position for position, step in enumerate(given, start=1)}


def _listed(ids: Iterable[int]) -> str:
    return ", ".join(str(step) for step in ids)
