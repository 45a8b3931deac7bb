"""How the model gets at a transcript."""

from enum import StrEnum


class TranscriptMode(StrEnum):
    """In the prompt, or through the tools of `tools`."""

    PROMPT = "prompt"
    TOOLS = "tools"
