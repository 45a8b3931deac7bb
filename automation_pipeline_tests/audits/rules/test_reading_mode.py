"""How the model gets at the calls: in the prompt as long as they fit."""

from dataclasses import replace

from automation_pipeline.audits.models.audits import TranscriptMode
from automation_pipeline.audits.rules.prompts import (
    StepPrompt,
    choose_transcript_mode,
    step_question,
)
from automation_pipeline_tests.audits.bench import KNOBS
from automation_pipeline_tests.audits.rules.timelines import config, step, timeline
from automation_pipeline_tests.tables import every_case

SHORT, LONG = step(position=1), step(position=2, prompt="Vérifie. " * 20)
CONFIG = config(SHORT, LONG)
TASKS = [
    StepPrompt(config=CONFIG, step=one, timeline=timeline(["bonjour"])) for one in CONFIG.steps
]
LONGEST = step_question(TASKS[1], KNOBS.excerpt).characters
PROMPT, TOOLS = TranscriptMode.PROMPT, TranscriptMode.TOOLS


@every_case(
    ("wanted", "limit", "mode"),
    [(PROMPT, LONGEST, PROMPT), (PROMPT, LONGEST - 1, TOOLS), (TOOLS, LONGEST, TOOLS)],
)
def test_one_prompt_that_does_not_fit_is_enough_for_tools(
    wanted: TranscriptMode, limit: int, mode: TranscriptMode
) -> None:
    assert (
        choose_transcript_mode(wanted, TASKS, replace(KNOBS, max_prompt_characters=limit)) == mode
    )


def test_instructions_count_too() -> None:
    told = replace(TASKS[1], instructions="Écoute encore.")
    assert (
        choose_transcript_mode(PROMPT, [told], replace(KNOBS, max_prompt_characters=LONGEST))
        == TOOLS
    )
