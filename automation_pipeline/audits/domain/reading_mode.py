"""Decides whether the model gets the calls in its prompt or reads them with tools."""

from collections.abc import Iterable

from automation_pipeline.audits.domain.knobs import Knobs
from automation_pipeline.audits.domain.modes import TranscriptMode
from automation_pipeline.audits.domain.prompt import StepTask, step_question


def mode_of(wanted: TranscriptMode, tasks: Iterable[StepTask], knobs: Knobs) -> TranscriptMode:
    """`tasks` as they are with the calls in the prompt: one that does not fit is enough for tools to be used."""
    if wanted is TranscriptMode.TOOLS:
        return TranscriptMode.TOOLS
    longest = max(step_question(task, knobs.excerpt).characters for task in tasks)
    return TranscriptMode.TOOLS if longest > knobs.max_prompt_characters else TranscriptMode.PROMPT
