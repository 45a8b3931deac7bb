"""The messages of a chat: their roles, their text, and a check that every tool call is answered."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from automation_pipeline.simulator.llm.errors import RefusedError, missing, wrong

ROLES = ("system", "developer", "user", "assistant", "tool")


@dataclass(frozen=True)
class ToolCall:
    """A tool call of the model."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Message:
    role: str
    text: str
    calls: tuple[ToolCall, ...] = ()
    answers: str = ""  # the id of the call that a tool's message answers

    @property
    def characters(self) -> int:
        return len(self.text) + sum(len(call.arguments) for call in self.calls)


def read_messages(posted: object) -> tuple[Message, ...]:
    """Raises RefusedError."""
    if posted is None:
        raise missing("messages")
    if not isinstance(posted, list):
        raise wrong("messages", "an array of objects", code="invalid_type")
    if not posted:
        raise RefusedError(
            "Invalid 'messages': empty array. Expected at least 1 message.",
            "messages",
            "empty_array",
        )
    messages = tuple(_message(one, place) for place, one in enumerate(cast("list[object]", posted)))
    _check_tool_calls(messages)
    return messages


def _message(posted: object, place: int) -> Message:
    name = f"messages[{place}]"
    if not isinstance(posted, dict):
        raise wrong(name, "an object", code="invalid_type")
    fields = cast("dict[str, object]", posted)
    role = fields.get("role")
    if role not in ROLES:
        raise (
            missing(f"{name}.role")
            if role is None
            else wrong(f"{name}.role", f"one of {', '.join(ROLES)}")
        )
    calls = (
        tuple(_tool_calls(fields.get("tool_calls"), f"{name}.tool_calls"))
        if role == "assistant"
        else ()
    )
    content = fields.get("content")
    if content is None and role == "assistant":
        return Message("assistant", "", calls)
    answers = fields.get("tool_call_id")
    if role == "tool" and not isinstance(answers, str):
        raise missing(f"{name}.tool_call_id")
    return Message(str(role), _text(content, f"{name}.content"), calls, str(answers or ""))


def _text(content: object, name: str) -> str:
    """A text, or the texts of its parts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise wrong(name, "a string or an array of parts", code="invalid_type")
    parts = [
        cast("Mapping[str, object]", part)
        for part in cast("list[object]", content)
        if isinstance(part, dict)
    ]
    return "".join(str(part.get("text", "")) for part in parts)


def _tool_calls(posted: object, name: str) -> list[ToolCall]:
    if posted is None:
        return []
    if not isinstance(posted, list) or not posted:
        raise wrong(name, "an array of at least 1 tool call", code="invalid_type")
    return [
        _tool_call(one, f"{name}[{place}]")
        for place, one in enumerate(cast("list[object]", posted))
    ]


def _tool_call(posted: object, name: str) -> ToolCall:
    fields = cast("dict[str, object]", posted) if isinstance(posted, dict) else {}
    function = fields.get("function")
    called = cast("dict[str, object]", function) if isinstance(function, dict) else {}
    given = (fields.get("id"), called.get("name"), called.get("arguments"))
    if not all(isinstance(value, str) for value in given) or fields.get("type") != "function":
        raise wrong(
            name,
            "an id, the type 'function', and a function with a name and arguments",
            code="invalid_type",
        )
    return ToolCall(*map(str, given))


def _check_tool_calls(messages: Sequence[Message]) -> None:
    """Each tool call is answered by the messages after it, and nothing else is."""
    open_calls: set[str] = set()
    for place, message in enumerate(messages):
        if message.role == "tool":
            if message.answers not in open_calls:
                raise RefusedError(
                    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
                    "'tool_calls'.",
                    f"messages.[{place}].role",
                )
            open_calls.discard(message.answers)
            continue
        _check_answered(open_calls, place)
        open_calls = {call.id for call in message.calls}
    _check_answered(open_calls, len(messages))


def _check_answered(open_calls: set[str], place: int) -> None:
    if open_calls:
        raise RefusedError(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: {min(open_calls)}",
            f"messages.[{place - 1}].role",
        )
