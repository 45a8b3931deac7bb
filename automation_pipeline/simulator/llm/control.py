"""`/_sim/llm`: configures the model and lists its replies."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from automation_pipeline.simulator.cap import MAX_PER_MINUTE, Cap
from automation_pipeline.simulator.faults import BadRequestError

MODELS = ("gpt-5.2", "gpt-5-mini", "gpt-4.1", "gpt-4o-mini")
INVENTIONS = 0.03
CONTEXT_CHARACTERS = 1_600_000
LAST_EVENT = "data: [DONE]"


@dataclass
class CountedReplies:
    """Completions that reached their caller, with their usage. `items` counts by item the completions that call no
    tool."""

    completions: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    items: Counter[str] = field(default_factory=Counter[str])

    def count(self, item: str, status: int, body: bytes) -> None:
        """A broken body does not count, because its caller received no usage."""
        completion = _completion(body) if status == 200 else None
        if completion is None:
            return
        usage, calls_tools = completion
        self.completions += 1
        self.prompt_tokens += usage.get("prompt_tokens", 0)
        self.completion_tokens += usage.get("completion_tokens", 0)
        if not calls_tools:
            self.items[item] += 1

    def reset(self) -> None:
        self.completions = self.prompt_tokens = self.completion_tokens = 0
        self.items.clear()


@dataclass
class ModelState:
    """`inventions` is the share of invented quotations."""

    cap: Cap
    inventions: float = INVENTIONS
    context_characters: int = CONTEXT_CHARACTERS
    answered: CountedReplies = field(default_factory=CountedReplies)

    def reset(self) -> None:
        """Clear the counted calls and replies. The configuration stays."""
        self.cap.reset()
        self.answered.reset()


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
    counts = cast("dict[str, Any]", usage or {})  # Any: a corrupted answer may hold anything
    return (
        None if any(isinstance(count, str) for count in counts.values()) else (counts, calls_tools)
    )


MAX_CONTEXT_CHARACTERS = 100_000_000


class ModelControl:
    """`calls` returns the number of requested completions."""

    def __init__(self, state: ModelState, calls: Callable[[], int]) -> None:
        self._state = state
        self._calls = calls

    def routes(self) -> list[Route]:
        return [
            Route("/_sim/llm", self.show, methods=["GET"]),
            Route("/_sim/llm", self.set_up, methods=["PUT", "POST"]),
        ]

    async def show(self, _request: Request) -> Response:
        answered = self._state.answered
        return JSONResponse(
            {
                "calls": self._calls(),
                "answered": answered.completions,
                "prompt_tokens": answered.prompt_tokens,
                "completion_tokens": answered.completion_tokens,
                "items": dict(answered.items),
                **self._settings(),
            }
        )

    async def set_up(self, request: Request) -> Response:
        """Change the named settings. If one is invalid, none changes."""
        try:
            posted = json.loads(await request.body())
        except (ValueError, RecursionError) as error:
            raise BadRequestError("The body is not valid JSON.") from error
        given = _checked(posted)
        state = self._state
        state.inventions = given.get("inventions", state.inventions)
        state.context_characters = given.get("context_characters", state.context_characters)
        state.cap.per_minute = given.get("per_minute", state.cap.per_minute)
        return JSONResponse(self._settings())

    def _settings(self) -> dict[str, object]:
        state = self._state
        return {
            "inventions": state.inventions,
            "context_characters": state.context_characters,
            "per_minute": state.cap.per_minute,
        }


def _checked(posted: object) -> dict[str, Any]:  # Any: checked here
    fields = cast("dict[str, Any]", posted) if isinstance(posted, dict) else {}
    checks: dict[str, tuple[Callable[[object], bool], str]] = {
        "inventions": (_is_share, "a number from 0 to 1"),
        "context_characters": (
            _is_whole(1, MAX_CONTEXT_CHARACTERS),
            f"from 1 to {MAX_CONTEXT_CHARACTERS}",
        ),
        "per_minute": (_is_whole(0, MAX_PER_MINUTE), f"from 0, for no cap, to {MAX_PER_MINUTE}"),
    }
    if not fields or set(fields) - set(checks):
        raise BadRequestError(f"The body must be an object with some of {', '.join(checks)}.")
    for name, value in fields.items():
        good, wanted = checks[name]
        if not good(value):
            raise BadRequestError(f"{name!r} must be {wanted}.")
    return fields


def _is_share(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


def _is_whole(low: int, high: int) -> Callable[[object], bool]:
    return lambda value: (
        isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
    )
