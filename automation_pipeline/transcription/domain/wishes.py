"""The bodies by which transcripts are asked for, as callers send them."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field

from automation_pipeline.core.json_model import JsonModel, parse
from automation_pipeline.core.query_values import DigitsText
from automation_pipeline.transcription.domain.run import Priority

COMPLAINT = "Invalid request - fiche_ids array required"
MOST_FICHES = 10_000


def priority_of(given: object) -> Priority:
    """Anything that is no priority is the normal one."""
    return next((priority for priority in Priority if priority == given), Priority.NORMAL)


def _each_once(given: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(given))


class TranscriptionBatchWish(JsonModel):
    model_config = ConfigDict(alias_generator=None)

    fiche_ids: Annotated[
        tuple[DigitsText, ...], Field(min_length=1, max_length=MOST_FICHES), AfterValidator(_each_once)
    ]
    priority: Annotated[Priority, BeforeValidator(priority_of, json_schema_input_type=str)] = Priority.NORMAL


def read_batch(given: Mapping[str, object]) -> TranscriptionBatchWish:
    """InvalidInputError that names what is wrong with each id."""
    return parse(TranscriptionBatchWish, given, COMPLAINT)
