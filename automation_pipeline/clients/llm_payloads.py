"""Chat completions as they go over the wire: a question's JSON, a completion turned into a reply, a list of models."""

import json
from typing import Annotated, TypeAlias, cast

import msgspec
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from automation_pipeline.audits.domain.chat import (
    AnswerSchema,
    Message,
    Question,
    Reply,
    Role,
    Tool,
    ToolCall,
    ToolChoice,
    Usage,
)
from automation_pipeline.clients.crm_payloads import without_nul

FILTERED = "The provider's content filter stopped the answer"
MOST_TOKENS = 1_000_000_000


def question_json(question: Question, model: str, temperature: float | None) -> bytes:
    """Half a character, which no UTF-8 can hold, is sent as a question mark."""
    document: dict[str, object] = {"model": model, "messages": [_message(message) for message in question.messages]}
    if temperature is not None:
        document["temperature"] = temperature
    if question.tools:
        document["tools"] = [_tool(tool) for tool in question.tools]
        document["tool_choice"] = question.tool_choice.value
    # A call that must be of a tool holds no answer, and some servers refuse to be asked for both.
    if not (question.tools and question.tool_choice is ToolChoice.REQUIRED):
        document["response_format"] = _response_format(question.schema)
    try:
        return msgspec.json.encode(document)
    except UnicodeEncodeError:
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", errors="replace")


def _message(message: Message) -> dict[str, object]:
    document: dict[str, object] = {"role": message.role.value, "content": message.content}
    if message.role is Role.TOOL:
        document["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        document["content"] = message.content or None
        document["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    return document


def _tool(tool: Tool) -> dict[str, object]:
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters), "strict": True}
    return {"type": "function", "function": function}


def _response_format(schema: AnswerSchema) -> dict[str, object]:
    return {
        "type": "json_schema",
        "json_schema": {"name": schema.name, "strict": True, "schema": dict(schema.schema)},
    }


def _clean(text: str) -> str:
    """Also without the NUL that JSON inside the text would have."""
    text = text.replace("\0", "")
    return without_nul(text.encode()).decode() if r"\u0000" in text else text


def _tokens(value: object) -> int:
    """What is no number of tokens is as good as none: an answer is not lost for its bill."""
    if isinstance(value, bool) or not isinstance(value, int):
        return 0
    return value if 0 <= value <= MOST_TOKENS else 0


def _usage(value: object) -> object:
    return cast("object", value) if isinstance(value, dict) else UsagePayload()


Text: TypeAlias = Annotated[str, AfterValidator(_clean)]
Tokens: TypeAlias = Annotated[int, BeforeValidator(_tokens)]


class _Payload(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


class FunctionPayload(_Payload):
    name: Text
    arguments: Text


class ToolCallPayload(_Payload):
    id: Text
    function: FunctionPayload


class MessagePayload(_Payload):
    content: Text | None = None
    tool_calls: list[ToolCallPayload] | None = None
    refusal: Text | None = None


class ChoicePayload(_Payload):
    message: MessagePayload
    finish_reason: str | None = None


class UsagePayload(_Payload):
    prompt_tokens: Tokens = 0
    completion_tokens: Tokens = 0


class CompletionPayload(_Payload):
    choices: list[ChoicePayload] = Field(min_length=1)
    usage: Annotated[UsagePayload, BeforeValidator(_usage)] = UsagePayload()

    def to_reply(self) -> Reply:
        """Of several choices the first: more were not asked for."""
        choice = self.choices[0]
        message, ended = choice.message, choice.finish_reason
        refusal = (message.refusal or "").strip() or (FILTERED if ended == "content_filter" else None)
        return Reply(
            content=message.content or "",
            usage=Usage(self.usage.prompt_tokens, self.usage.completion_tokens),
            tool_calls=tuple(
                ToolCall(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or ()
            ),
            refusal=refusal,
            is_cut=ended == "length",
        )


class ModelPayload(_Payload):
    id: str


class ModelsPayload(_Payload):
    data: list[ModelPayload]

    @property
    def names(self) -> set[str]:
        return {model.id for model in self.data}
