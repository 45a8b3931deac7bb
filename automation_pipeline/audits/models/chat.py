"""A conversation with a language model, and the JSON in its replies. The client is `clients.llm`."""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, TypeVar, cast

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
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


MAX_TEXT = 20_000
_MOST_COMPLAINTS = 8
_LARGEST = 2**31 - 1
# Prose may hold braces; a text with more of them than this counts as no answer.
_MOST_BRACES = 64
_NO_JSON = (
    "La réponse n'est pas du JSON valide : donne un seul objet JSON complet, sans autre texte."
)
_REASONED = re.compile(r"</(?:think|thinking|reasoning|thought)>", re.IGNORECASE)
_OBJECT = re.compile(r'\{\s*"')
_DECODER = json.JSONDecoder()


class ModelOutputError(ValueError):
    """`problem`: one French sentence that tells the model what to mend."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem


def _storable(given: object) -> object:
    """Without NUL and halves of surrogate pairs, which a JSON escape can smuggle in and no database
    takes."""
    if not isinstance(given, str):
        return given
    return given.replace("\0", "").encode(errors="replace").decode()[:MAX_TEXT]


def _whole(given: object) -> object:
    return int(given) if isinstance(given, float) and given.is_integer() else given


def _real(given: object) -> object:
    return float(given) if type(given) is int and abs(given) <= _LARGEST else given


Text = Annotated[str, BeforeValidator(_storable)]
Whole = Annotated[StrictInt, Field(ge=-_LARGEST, le=_LARGEST), BeforeValidator(_whole)]
NonNegative = Annotated[StrictInt, Field(ge=0, le=_LARGEST), BeforeValidator(_whole)]
Seconds = Annotated[
    StrictFloat, Field(ge=0, le=_LARGEST, allow_inf_nan=False), BeforeValidator(_real)
]
Flag = StrictBool


class ModelOutput(BaseModel):
    """Unknown fields are ignored: a provider without strict schemas lets some through."""

    model_config = ConfigDict(extra="ignore", frozen=True)


OutputModel = TypeVar("OutputModel", bound=ModelOutput)


def parse_model_output(model: type[OutputModel], text: str) -> OutputModel:
    """The object in the model's text, whatever surrounds it; WrittenError when there is none that
    fits.

    Of several objects, the last one that fits counts: a model corrects its drafts.
    """
    found = _objects(text)
    for given in reversed(found):
        with suppress(ValidationError):
            return model.model_validate(given)
    if not found:
        raise ModelOutputError(_NO_JSON)
    try:
        return model.model_validate(found[-1])
    except ValidationError as error:
        raise ModelOutputError(_complaints(error)) from None


def _objects(text: str) -> list[dict[str, object]]:
    """The JSON objects in the text, in their order: the whole text, or what reasoning, prose and
    code fences leave. One missing brace at the end is added."""
    whole = text.replace("\0", "").strip()
    read = _loaded(whole)
    if read is None:
        said = _without_reasoning(whole)
        return _scanned(said) or _closed(said)
    if not isinstance(read, dict):
        raise ModelOutputError("La réponse doit être un objet JSON, pas une autre valeur.")
    return [cast("dict[str, object]", read)]


def _without_reasoning(text: str) -> str:
    """Models that reason aloud do so in tags before the answer. Some servers drop the opening
    tag."""
    return text[max((end.end() for end in _REASONED.finditer(text)), default=0) :]


def _scanned(text: str) -> list[dict[str, object]]:
    """Objects that stand in prose or fences. Inside an object that cannot be read, none is looked
    for."""
    found: list[dict[str, object]] = []
    place = 0
    for _ in range(_MOST_BRACES):
        begin = text.find("{", place)
        if begin < 0:
            break
        try:
            read, place = _DECODER.raw_decode(text, begin)
        except (ValueError, RecursionError):
            if _OBJECT.match(text, begin):
                break
            place = begin + 1
        else:
            found.append(read)
    return found


def _closed(text: str) -> list[dict[str, object]]:
    begin = text.find("{")
    read = _loaded(text[begin:].removesuffix("```").strip() + "}") if begin >= 0 else None
    return [cast("dict[str, object]", read)] if isinstance(read, dict) else []


def _loaded(text: str) -> object:
    """None when it cannot be read: broken, nested too deep, or with a number of thousands of
    digits."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


_MESSAGES = {
    "missing": "est obligatoire",
    "bool_type": "doit être true ou false",
    "string_type": "doit être un texte",
    "tuple_type": "doit être une liste",
    "model_type": "doit être un objet",
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


def _complaints(error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_input=False)
    payload: list[str] = []
    for problem in problems[:_MOST_COMPLAINTS]:
        why = _MESSAGES.get(problem["type"], "n'est pas valide").format(**problem.get("ctx", {}))
        payload.append(f"{_path(problem['loc'])} {why}".replace("' or '", "' ou '"))
    more = len(problems) - len(payload)
    return "; ".join(payload) + (f"; et {more} autre(s) faute(s)" if more else "") + "."


def _path(location: tuple[int | str, ...]) -> str:
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return "".join(parts).removeprefix(".")
