"""A conversation with a language model, and the JSON in its replies. The client is `clients.llm`."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Any, Protocol, TypeVar, cast

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictFloat,
    StrictInt,
    TypeAdapter,
    ValidationError,
)


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


class LanguageModel(Protocol):
    """A model that answers in JSON of a given schema and may call tools. The caller retries and waits."""

    @property
    def name(self) -> str:
        """The provider's name of the model."""
        ...

    async def ask(self, question: Question) -> Reply:
        """Return the model's next message, with one call.

        The caller validates the content: a reply may be cut, empty or invalid, and has its usage
        anyway. Raises TransientError when there is no valid completion, with the requested
        `retry_after_seconds`, if any. Raises PermanentError when the key, the model or the question
        is refused. No message contains the key.
        """
        ...

    async def check(self) -> None:
        """Raise an AutomationError unless the provider answers and accepts the key and the model."""
        ...


MAX_TEXT = 20_000
_MAX_COMPLAINTS = 8
_MAX_NUMBER = 2**31 - 1
# Prose may contain braces. A text with more of them has no answer.
_MAX_BRACES = 64
_NO_JSON = (
    "La réponse n'est pas du JSON valide : donne un seul objet JSON complet, sans autre texte."
)
_REASONED = re.compile(r"</(?:think|thinking|reasoning|thought)>", re.IGNORECASE)
_OBJECT = re.compile(r'\{\s*"')
_DECODER = json.JSONDecoder()
_MESSAGES = {
    "missing": "est obligatoire",
    "bool_type": "doit être true ou false",
    "string_type": "doit être un texte",
    "tuple_type": "doit être une liste",
    "model_type": "doit être un objet",
    "dataclass_type": "doit être un objet",
    "int_type": "doit être un nombre entier",
    "float_type": "doit être un nombre",
    "finite_number": "doit être un nombre fini",
    "enum": "doit être une des valeurs permises : {expected}",
    "literal_error": "doit être une des valeurs permises : {expected}",
    "greater_than_equal": "doit être au moins {ge}",
    "less_than_equal": "doit être au plus {le}",
    "too_short": "doit avoir au moins {min_length} élément(s)",
    "too_long": "doit avoir au plus {max_length} éléments",
}


class ModelOutputError(ValueError):
    """`problem` is a French sentence for the model: what to correct."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem


def _storable(given: object) -> object:
    """Remove what a JSON escape can contain and no database stores: NUL and half surrogate pairs."""
    if not isinstance(given, str):
        return given
    return given.replace("\0", "").encode(errors="replace").decode()[:MAX_TEXT]


def _whole(given: object) -> object:
    return int(given) if isinstance(given, float) and given.is_integer() else given


def _real(given: object) -> object:
    return float(given) if type(given) is int and abs(given) <= _MAX_NUMBER else given


Text = Annotated[str, BeforeValidator(_storable)]
Whole = Annotated[StrictInt, Field(ge=-_MAX_NUMBER, le=_MAX_NUMBER), BeforeValidator(_whole)]
NonNegative = Annotated[StrictInt, Field(ge=0, le=_MAX_NUMBER), BeforeValidator(_whole)]
Seconds = Annotated[
    StrictFloat, Field(ge=0, le=_MAX_NUMBER, allow_inf_nan=False), BeforeValidator(_real)
]


class ModelOutput(BaseModel):
    """Unknown fields are ignored, because providers without strict schemas return some."""

    model_config = ConfigDict(extra="ignore", frozen=True)


Output = TypeVar("Output")
_parser = lru_cache(TypeAdapter[Any])


def parse_model_output(output: type[Output], text: str) -> Output:
    """Find the object in the model's text, which may have other text around it. Of several valid objects,
    the last one counts, because a model corrects its drafts. Raises ModelOutputError."""
    problem = ""
    for given in reversed(_objects(text)):
        try:
            return cast("Output", _parser(output).validate_python(given))
        except ValidationError as error:
            problem = problem or _complaints(error)
    raise ModelOutputError(problem or _NO_JSON)


def _objects(text: str) -> list[dict[str, object]]:
    """The JSON objects in the text, in their order, without reasoning, prose and code fences. A missing brace
    at the end is added."""
    text = text.replace("\0", "").strip()
    whole = _loaded(text)
    if whole is not None and not isinstance(whole, dict):
        raise ModelOutputError("La réponse doit être un objet JSON, pas une autre valeur.")
    if whole is None:
        # Some servers leave out the opening tag of the reasoning.
        text = text[max((end.end() for end in _REASONED.finditer(text)), default=0) :]
        found = _scanned(text)
        begin = text.find("{")
        if found or begin < 0:
            return found
        whole = _loaded(text[begin:].removesuffix("```").strip() + "}")
    return [cast("dict[str, object]", whole)] if isinstance(whole, dict) else []


def _scanned(text: str) -> list[dict[str, object]]:
    """The objects in prose or fences, up to the first one that cannot be read."""
    found: list[dict[str, object]] = []
    position = 0
    for _ in range(_MAX_BRACES):
        begin = text.find("{", position)
        if begin < 0:
            break
        try:
            read, position = _DECODER.raw_decode(text, begin)
        except (ValueError, RecursionError):
            if _OBJECT.match(text, begin):
                break
            position = begin + 1
        else:
            found.append(read)
    return found


def _loaded(text: str) -> object:
    """None if the text is invalid, nested too deeply, or has a number of thousands of digits."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _complaints(error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_input=False)
    complaints: list[str] = []
    for problem in problems[:_MAX_COMPLAINTS]:
        where = "".join(
            f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem["loc"]
        ).removeprefix(".")
        why = _MESSAGES.get(problem["type"], "n'est pas valide").format(**problem.get("ctx", {}))
        complaints.append(f"{where} {why}".replace("' or '", "' ou '"))
    more = len(problems) - len(complaints)
    return "; ".join(complaints) + (f"; et {more} autre(s) faute(s)" if more else "") + "."
