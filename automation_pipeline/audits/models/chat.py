"""A conversation with a language model. The HTTP client is `clients.llm`."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class ToolChoice(StrEnum):
    AUTO = "auto"
    REQUIRED = "required"
    NONE = "none"


@dataclass(frozen=True)
class ToolCall:
    """`arguments` is the model's JSON, which may be invalid."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Message:
    role: Role
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None


@dataclass(frozen=True)
class Tool:
    name: str
    description: str
    parameters: Mapping[str, object]


@dataclass(frozen=True)
class AnswerSchema:
    """The strict JSON schema of the answer, with a name for the model."""

    name: str
    schema: Mapping[str, object]


@dataclass(frozen=True)
class Question:
    messages: tuple[Message, ...]
    schema: AnswerSchema
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice.NONE

    @property
    def characters(self) -> int:
        """The size of the prompt."""
        return sum(
            len(message.content) + sum(len(call.arguments) for call in message.tool_calls)
            for message in self.messages
        )


@dataclass(frozen=True)
class Usage:
    prompt_tokens: int = 0
    completion_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
        )


@dataclass(frozen=True)
class Reply:
    """The model's reply: `content` (possibly empty), tool calls, or a `refusal`. `is_cut`: it reached
    the length limit."""

    content: str
    usage: Usage
    tool_calls: tuple[ToolCall, ...] = ()
    refusal: str | None = None
    is_cut: bool = False
