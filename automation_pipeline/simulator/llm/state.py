"""The set-up of the model and its answers, which `/_sim/llm` changes and shows."""

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, cast

from automation_pipeline.simulator.cap import Cap

MODELS = ("gpt-5.2", "gpt-5-mini", "gpt-4.1", "gpt-4o-mini")
INVENTIONS = 0.03
CONTEXT_CHARACTERS = 1_600_000
LAST_EVENT = "data: [DONE]"


@dataclass
class Answered:
    """The completions that were sent whole to a caller who was still there, with their
    usage. `items` counts the final ones, which call no tool, by item."""

    completions: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    items: Counter[str] = field(default_factory=Counter[str])

    def count(self, item: str, status: int, body: bytes) -> None:
        """A broken body does not count: its caller has received no usage."""
        completion = _completion(body) if status == 200 else None
        if completion is None:
            return
        usage, calls_tools = completion
        self.completions += 1
        self.prompt_tokens += usage.get("prompt_tokens", 0)
        self.completion_tokens += usage.get("completion_tokens", 0)
        if not calls_tools:
            self.items[item] += 1

    def forget(self) -> None:
        self.completions = self.prompt_tokens = self.completion_tokens = 0
        self.items.clear()


@dataclass
class ModelState:
    """`inventions` is the share of proofs that are made up."""

    cap: Cap
    inventions: float = INVENTIONS
    context_characters: int = CONTEXT_CHARACTERS
    answered: Answered = field(default_factory=Answered)

    def forget(self) -> None:
        """Forget the calls and answers; the set-up stays."""
        self.cap.forget()
        self.answered.forget()


def _completion(body: bytes) -> tuple[dict[str, int], bool] | None:
    """The usage, and whether the completion calls tools."""
    text = body.decode("utf-8", "replace")
    try:
        if text.startswith("data: "):
            parts = [
                json.loads(line[6:]) for line in text.splitlines() if line and line != LAST_EVENT
            ]
        else:
            parts = [json.loads(text)]
        usage = next((part["usage"] for part in reversed(parts) if part.get("usage")), None)
        calls_tools = any(
            choice["finish_reason"] == "tool_calls" for part in parts for choice in part["choices"]
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    counts = cast("dict[str, Any]", usage or {})  # Any: a spoiled answer may hold anything
    return (
        None if any(isinstance(count, str) for count in counts.values()) else (counts, calls_tools)
    )
