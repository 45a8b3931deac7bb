"""`/_sim/llm`: how the model is set up, and what it has answered."""

import json
from collections.abc import Callable
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from automation_pipeline.simulator.cap import MAX_PER_MINUTE
from automation_pipeline.simulator.fault_rules import BadRequestError
from automation_pipeline.simulator.llm.state import ModelState

MAX_CONTEXT_CHARACTERS = 100_000_000


class ModelControl:
    """`calls` is the number of requested completions."""

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
        """What is not named stays; all is good or nothing is taken."""
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
