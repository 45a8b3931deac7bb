"""`tools`, `tool_choice`, `parallel_tool_calls`: what the model may call, and whether it must."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from automation_pipeline.simulator.llm.errors import RefusedError, missing, wrong
from automation_pipeline.simulator.llm.schema import Schema, strict_problem

CHOICES = ("none", "auto", "required")


@dataclass(frozen=True)
class Offer:
    """The parameters of each tool by its name. `choice` is one of CHOICES; `named` is the tool that
    must be called."""

    tools: Mapping[str, Schema]
    choice: str = "none"
    named: str | None = None
    several: bool = True  # calls in one message

    @property
    def must_call(self) -> bool:
        return self.choice == "required" or self.named is not None


def read_offer(fields: Mapping[str, object]) -> Offer:
    """Raises RefusedError."""
    posted = fields.get("tools")
    if posted is None:
        for name in ("tool_choice", "parallel_tool_calls"):
            if fields.get(name) is not None:
                raise RefusedError(f"'{name}' is only allowed when 'tools' are specified.", name)
        return Offer({})
    if not isinstance(posted, list) or not posted:
        raise wrong("tools", "an array of at least 1 tool", code="invalid_type")
    several = fields.get("parallel_tool_calls", True)
    if not isinstance(several, bool):
        raise wrong("parallel_tool_calls", "a boolean", code="invalid_type")
    tools = dict(
        _tool(one, f"tools[{place}]") for place, one in enumerate(cast("list[object]", posted))
    )
    choice, named = _chosen(fields.get("tool_choice", "auto"), tools)
    return Offer(tools, choice, named, several)


def _tool(posted: object, name: str) -> tuple[str, Schema]:
    fields = cast("dict[str, object]", posted) if isinstance(posted, dict) else {}
    if fields.get("type") != "function":
        raise wrong(f"{name}.type", "'function'")
    if not isinstance(function := fields.get("function"), dict):
        raise missing(f"{name}.function")
    described = cast("dict[str, object]", function)
    called = described.get("name")
    if not isinstance(called, str) or not re.fullmatch(r"[\w-]{1,64}", called, re.ASCII):
        raise wrong(f"{name}.function.name", "at most 64 letters, digits, underscores and dashes")
    parameters = described.get(
        "parameters", {"type": "object", "properties": {}, "additionalProperties": False}
    )
    if not isinstance(parameters, dict):
        raise wrong(f"{name}.function.parameters", "an object", code="invalid_type")
    if described.get("strict") is True and (problem := strict_problem(cast("object", parameters))):
        raise RefusedError(
            f"Invalid schema for function '{called}': {problem}",
            f"{name}.function.parameters",
            "invalid_function_parameters",
        )
    return called, cast("Schema", parameters)


def _chosen(choice: object, tools: Mapping[str, Schema]) -> tuple[str, str | None]:
    if choice in CHOICES:
        return str(choice), None
    named = cast("dict[str, object]", choice).get("function") if isinstance(choice, dict) else None
    if not isinstance(named, dict):
        raise wrong("tool_choice", f"one of {', '.join(CHOICES)}, or a function")
    name = cast("dict[str, object]", named).get("name")
    if not isinstance(name, str) or name not in tools:
        raise RefusedError(f"Tool choice '{name}' not found in 'tools' parameter.", "tool_choice")
    return "required", name
