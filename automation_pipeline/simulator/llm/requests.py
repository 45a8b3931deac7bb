"""The body of a chat completion: its messages, tools and response format, and the errors of invalid fields."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from automation_pipeline.simulator.llm.schema import Schema, strict_problem

INVALID_REQUEST = "invalid_request_error"


@dataclass(eq=False)
class RefusedError(Exception):
    """An answer other than 200 in the format of OpenAI: message, field and code."""

    message: str
    param: str | None = None
    code: str | None = None
    status: int = 400
    type: str = INVALID_REQUEST

    @property
    def error(self) -> dict[str, object]:
        return {"message": self.message, "type": self.type, "param": self.param, "code": self.code}


def wrong(param: str, wanted: str, *, code: str = "invalid_value") -> RefusedError:
    return RefusedError(f"Invalid '{param}': expected {wanted}.", param, code)


def missing(param: str) -> RefusedError:
    return RefusedError(
        f"Missing required parameter: '{param}'.", param, "missing_required_parameter"
    )


def simulated_error(status: int) -> object:
    """The error body of a simulated fault, with the type that OpenAI uses for the status."""
    kind, code = {
        401: (INVALID_REQUEST, "invalid_api_key"),
        404: (INVALID_REQUEST, "model_not_found"),
        429: ("requests", "rate_limit_exceeded"),
    }.get(status, ("server_error" if status >= 500 else INVALID_REQUEST, None))
    return RefusedError(f"Simulated answer {status}.", None, code, status, kind).error


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
            "Invalid 'messages': empty array. Expected at minimal_value 1 message.",
            "messages",
            "empty_array",
        )
    messages = tuple(_message(one, index) for index, one in enumerate(cast("list[object]", posted)))
    _check_tool_calls(messages)
    return messages


def _message(posted: object, index: int) -> Message:
    name = f"messages[{index}]"
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
        raise wrong(name, "an array of at minimal_value 1 tool call", code="invalid_type")
    return [
        _tool_call(one, f"{name}[{index}]")
        for index, one in enumerate(cast("list[object]", posted))
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
    """Check that the messages after a tool call answer it, and answer no other call."""
    open_calls: set[str] = set()
    for index, message in enumerate(messages):
        if message.role == "tool":
            if message.answers not in open_calls:
                raise RefusedError(
                    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
                    "'tool_calls'.",
                    f"messages.[{index}].role",
                )
            open_calls.discard(message.answers)
            continue
        _check_answered(open_calls, index)
        open_calls = {call.id for call in message.calls}
    _check_answered(open_calls, len(messages))


def _check_answered(open_calls: set[str], index: int) -> None:
    if open_calls:
        raise RefusedError(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: {min(open_calls)}",
            f"messages.[{index - 1}].role",
        )


KINDS = ("text", "json_object", "json_schema")


@dataclass(frozen=True)
class Format:
    kind: str = "text"
    schema: Schema | None = None


def read_format(posted: object, messages: Sequence[Message]) -> Format:
    """Raises RefusedError."""
    if posted is None:
        return Format()
    fields = cast("dict[str, object]", posted) if isinstance(posted, dict) else {}
    kind = fields.get("type")
    if kind not in KINDS:
        raise wrong("response_format.type", f"one of {', '.join(KINDS)}")
    if kind == "json_object" and not any("json" in message.text.lower() for message in messages):
        raise RefusedError(
            "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'.",
            "messages",
        )
    return Format(str(kind), _schema(fields.get("json_schema")) if kind == "json_schema" else None)


def _schema(posted: object) -> Schema:
    if not isinstance(posted, dict):
        raise missing("response_format.json_schema")
    described = cast("dict[str, object]", posted)
    name = described.get("name")
    if name is None:
        raise missing("response_format.json_schema.name")
    if not isinstance(name, str) or not re.fullmatch(r"[\w-]{1,64}", name, re.ASCII):
        raise wrong(
            "response_format.json_schema.name", "at most 64 letters, digits, underscores and dashes"
        )
    schema = described.get("schema", {})
    if not isinstance(schema, dict):
        raise wrong("response_format.json_schema.schema", "an object", code="invalid_type")
    fields = cast("Schema", schema)
    problem = strict_problem(fields) if described.get("strict") is True else None
    if described.get("strict") is True and fields.get("type") != "object":
        problem = "schema must be a JSON Schema of 'type: \"object\"'."
    if problem:
        raise RefusedError(
            f"Invalid schema for response_format '{name}': {problem}", "response_format"
        )
    return fields


CHOICES = ("none", "auto", "required")


@dataclass(frozen=True)
class ToolOptions:
    """The parameters of each tool by its name. `choice` is one of CHOICES; `named` is the tool that
    must be called."""

    tools: Mapping[str, Schema]
    choice: str = "none"
    named: str | None = None
    several: bool = True  # calls in one message

    @property
    def must_call(self) -> bool:
        return self.choice == "required" or self.named is not None


def read_tool_options(fields: Mapping[str, object]) -> ToolOptions:
    """Raises RefusedError."""
    posted = fields.get("tools")
    if posted is None:
        for name in ("tool_choice", "parallel_tool_calls"):
            if fields.get(name) is not None:
                raise RefusedError(f"'{name}' is only allowed when 'tools' are specified.", name)
        return ToolOptions({})
    if not isinstance(posted, list) or not posted:
        raise wrong("tools", "an array of at minimal_value 1 tool", code="invalid_type")
    several = fields.get("parallel_tool_calls", True)
    if not isinstance(several, bool):
        raise wrong("parallel_tool_calls", "a boolean", code="invalid_type")
    tools = dict(
        _tool(one, f"tools[{index}]") for index, one in enumerate(cast("list[object]", posted))
    )
    choice, named = _chosen(fields.get("tool_choice", "auto"), tools)
    return ToolOptions(tools, choice, named, several)


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


Fields = Mapping[str, object]

# Accepted without effect.
IGNORED = frozenset({
    "frequency_penalty", "logit_bias", "logprobs", "metadata", "modalities", "prediction", "presence_penalty",
    "prompt_cache_key", "prompt_cache_retention", "reasoning_effort", "safety_identifier", "seed", "service_tier",
    "stop", "store", "top_logprobs", "top_p", "user", "verbosity", "web_search_options",
})  # fmt: skip
READ = frozenset({
    "model", "messages", "temperature", "response_format", "tools", "tool_choice", "parallel_tool_calls",
    "max_completion_tokens", "max_tokens", "n", "stream", "stream_options",
})  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ChatRequest:
    model: str
    messages: tuple[Message, ...]
    format: Format
    tool_options: ToolOptions
    max_tokens: int | None
    stream: bool
    include_usage: bool  # as the last event of a stream

    @property
    def characters(self) -> int:
        return sum(message.characters for message in self.messages)


def read_request(body: bytes) -> ChatRequest:
    """Raises RefusedError."""
    fields = _fields(body)
    if unknown := set(fields) - READ - IGNORED:
        name = min(unknown)
        raise RefusedError(f"Unknown parameter: '{name}'.", name, "unknown_parameter")
    model = fields.get("model")
    if not isinstance(model, str) or not model:
        raise missing("model") if model is None else wrong("model", "a string", code="invalid_type")
    messages = read_messages(fields.get("messages"))
    _check_numbers(fields)
    stream = _flag(fields, "stream")
    options = fields.get("stream_options")
    if options is not None and not stream:
        raise RefusedError(
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
            "stream_options",
        )
    return ChatRequest(
        model=model,
        messages=messages,
        format=read_format(fields.get("response_format"), messages),
        tool_options=read_tool_options(fields),
        max_tokens=cast(
            "int | None", fields.get("max_completion_tokens") or fields.get("max_tokens")
        ),
        stream=stream,
        include_usage=isinstance(options, dict)
        and cast("dict[str, object]", options).get("include_usage") is True,
    )


def _fields(body: bytes) -> Fields:
    try:
        posted = json.loads(body)
    except (ValueError, RecursionError):
        raise RefusedError(
            "We could not parse the JSON body of your request. (HINT: This likely means you aren't using your HTTP "
            "library correctly. The OpenAI API expects a JSON payload, but what was sent was not valid JSON.)"
        ) from None
    if not isinstance(posted, dict):
        raise RefusedError("The body must be a JSON object.", None, "invalid_type")
    return cast("Fields", posted)


def _check_numbers(fields: Fields) -> None:
    temperature = fields.get("temperature")
    if temperature is not None and not (
        _is_number(temperature) and 0 <= cast("float", temperature) <= 2
    ):
        raise wrong("temperature", "a number from 0 to 2")
    for name in ("max_completion_tokens", "max_tokens"):
        if (limit := fields.get(name)) is not None and not (
            _is_whole(limit) and cast("int", limit) >= 1
        ):
            raise wrong(name, "a whole number from 1")
    if (choices := fields.get("n")) is not None and not (_is_whole(choices) and choices == 1):
        raise wrong("n", "1: more choices are not supported")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return _is_whole(value) or isinstance(value, float)


def _flag(fields: Fields, name: str) -> bool:
    value = fields.get(name)
    if value is not None and not isinstance(value, bool):
        raise wrong(name, "a boolean", code="invalid_type")
    return bool(value)
