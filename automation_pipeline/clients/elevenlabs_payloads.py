"""ElevenLabs' answers as they come over the wire: a transcript, turned into the room's own values, or a refusal."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from math import isfinite
from typing import Annotated, Any, Self, TypeAlias, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, JsonValue, TypeAdapter, ValidationError
from pydantic_core import from_json

from automation_pipeline.clients.crm_payloads import without_nul
from automation_pipeline.transcription.domain.transcript import SPACING, Transcript, Word

LONGEST_MESSAGE = 500
LONGEST_CODE = 100


def _text_or_none(value: object) -> object:
    """For what is only noted down: a value of another kind is as good as none."""
    return (value.strip() or None) if isinstance(value, str) else None


def _number_or_none(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if isfinite(value) else None
    except OverflowError:  # JSON's whole numbers have no end
        return None


NotedText: TypeAlias = Annotated[str | None, BeforeValidator(_text_or_none)]
NotedNumber: TypeAlias = Annotated[float | None, BeforeValidator(_number_or_none)]


def _words(said: Iterable[object]) -> Iterator[Word]:
    """Without spacings, which say nothing, and those that lack their text, their times or their type. By hand: of words
    there are tens of thousands."""
    for each in said:
        if not isinstance(each, dict):
            continue
        told = cast("dict[str, object]", each)
        if (kind := told.get("type")) == SPACING:
            continue
        text, start, end, speaker = told.get("text"), told.get("start"), told.get("end"), told.get("speaker_id")
        if not (isinstance(text, str) and text and isinstance(kind, str) and kind):
            continue
        if not (type(start) is float and type(end) is float and isfinite(start) and isfinite(end)):
            start, end = _number_or_none(start), _number_or_none(end)
            if start is None or end is None:
                continue
        yield Word(text, start, end, kind, (speaker.strip() or None) if isinstance(speaker, str) else None)


class TranscriptPayload(BaseModel):
    """Words that cannot be used are left out; the rest of the transcript stands."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    transcription_id: NotedText = None
    text: str | None = None
    language_code: NotedText = None
    language_probability: NotedNumber = None
    words: list[Any] | None = None  # whatever they are: `_words` looks at each

    @classmethod
    def of_json(cls, body: bytes) -> Self:
        """ValueError: it is no JSON; as ValidationError: it is another. Twice as fast as to validate what is parsed."""
        return cls.model_validate(from_json(body))

    def to_transcript(self, transcription_id: str) -> Transcript:
        return Transcript(
            transcription_id=transcription_id,
            text=self.text or "",
            language_code=self.language_code,
            language_probability=self.language_probability,
            words=tuple(_words(self.words or ())),
        )


@dataclass(frozen=True)
class Refusal:
    """What the provider says instead of a transcript: its status, and as much of a code and a message as it gives."""

    status: int
    code: str | None = None
    message: str | None = None

    def __str__(self) -> str:
        parts = [f"ElevenLabs speech-to-text failed status={self.status}"]
        parts += [f"code={self.code}"] if self.code else []
        parts += [f"provider_message={self.message}"] if self.message else []
        return " ".join(parts)


_MESSAGES = ("detail", "message", "error", "error_message", "reason", "msg")
_CODES = ("code", "status", "type")
_NESTED = ("detail", "error")
_JSON: TypeAdapter[JsonValue] = TypeAdapter(JsonValue)


def refusal_of(status: int, body: bytes, secret: str) -> Refusal:
    """What the body says, on one line and without the secret, should the provider repeat it."""
    try:
        document = _JSON.validate_json(without_nul(body))
    except ValidationError:
        return Refusal(status)

    def shown(text: str | None, longest: int) -> str | None:
        return text and " ".join(text.replace(secret, "***").split())[:longest]

    return Refusal(
        status,
        code=shown(_found(document, _CODES), LONGEST_CODE),
        message=shown(_found(document, _MESSAGES), LONGEST_MESSAGE),
    )


def _found(value: JsonValue, names: Iterable[str]) -> str | None:
    """The first text under one of the names, the outer before the inner; of a list only its first element counts."""
    if isinstance(value, list):
        value = value[0] if value else None
    if not isinstance(value, dict):
        return None
    texts = (text for name in names if isinstance(text := value.get(name), str) and text.strip())
    inner = (text for name in _NESTED if (text := _found(value.get(name), names)))
    return next(chain(texts, inner), None)
