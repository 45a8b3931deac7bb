"""ElevenLabs' speech-to-text over HTTP: `transcription.ports.SpeechToText`. `audio` fetches the
recordings."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from io import FileIO
from itertools import chain
from math import isfinite
from typing import Annotated, Any, Self, TypeAlias, cast

import httpx
from msgspec import DecodeError, Struct
from msgspec.json import Decoder
from pydantic import BaseModel, BeforeValidator, ConfigDict, JsonValue, TypeAdapter, ValidationError
from pydantic_core import from_json

from automation_pipeline.clients import http as keys
from automation_pipeline.clients.audio import AUDIO_LIMITS, AudioHosts, AudioLimits, audio_guard
from automation_pipeline.clients.crm import without_nul
from automation_pipeline.clients.http import (
    MEGABYTE,
    BodyRefusedError,
    HttpAnswer,
    HttpClient,
    Observation,
)
from automation_pipeline.core.errors import PermanentError, TransientError
from automation_pipeline.core.metrics import Meter
from automation_pipeline.core.retry import retry_after_seconds
from automation_pipeline.transcription.models import SPACING, Transcript, Word
from automation_pipeline.transcription.ports import ProviderAccessError

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


LenientText: TypeAlias = Annotated[str | None, BeforeValidator(_text_or_none)]
LenientNumber: TypeAlias = Annotated[float | None, BeforeValidator(_number_or_none)]


def _words(said: Iterable[object]) -> Iterator[Word]:
    """Without spacings, which say nothing, and those that lack their text, their times or their
    type. By hand: of words there are tens of thousands."""
    for each in said:
        if not isinstance(each, dict):
            continue
        told = cast("dict[str, object]", each)
        if (kind := told.get("type")) == SPACING:
            continue
        text, start, end, speaker = (
            told.get("text"),
            told.get("start"),
            told.get("end"),
            told.get("speaker_id"),
        )
        if not (isinstance(text, str) and text and isinstance(kind, str) and kind):
            continue
        if not (type(start) is float and type(end) is float and isfinite(start) and isfinite(end)):
            start, end = _number_or_none(start), _number_or_none(end)
            if start is None or end is None:
                continue
        yield Word(
            text, start, end, kind, (speaker.strip() or None) if isinstance(speaker, str) else None
        )


class TranscriptPayload(BaseModel):
    """Words that cannot be used are left out; the rest of the transcript stands."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    transcription_id: LenientText = None
    text: str | None = None
    language_code: LenientText = None
    language_probability: LenientNumber = None
    words: list[Any] | None = None  # whatever they are: `_words` looks at each

    @classmethod
    def of_json(cls, body: bytes) -> Self:
        """ValueError: it is no JSON; as ValidationError: it is another. Twice as fast as to
        validate what is parsed."""
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
class ProviderRefusal:
    """What the provider says instead of a transcript: its status, and as much of a code and a
    message as it gives."""

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


def refusal_of(status: int, body: bytes, secret: str) -> ProviderRefusal:
    """What the body says, on one line and without the secret, should the provider repeat it."""
    try:
        document = _JSON.validate_json(without_nul(body))
    except ValidationError:
        return ProviderRefusal(status)

    def shown(text: str | None, longest: int) -> str | None:
        return text and " ".join(text.replace(secret, "***").split())[:longest]

    return ProviderRefusal(
        status,
        code=shown(_found(document, _CODES), LONGEST_CODE),
        message=shown(_found(document, _MESSAGES), LONGEST_MESSAGE),
    )


def _found(value: JsonValue, names: Iterable[str]) -> str | None:
    """The first text under one of the names, the outer before the inner; of a list only its first
    element counts."""
    if isinstance(value, list):
        value = value[0] if value else None
    if not isinstance(value, dict):
        return None
    texts = (text for name in names if isinstance(text := value.get(name), str) and text.strip())
    inner = (text for name in _NESTED if (text := _found(value.get(name), names)))
    return next(chain(texts, inner), None)


class _Answer(Struct):
    transcription_id: str
    text: str | None = None
    language_code: str | None = None
    language_probability: float | None = None
    words: list[Word] | None = None


_READ = Decoder(_Answer).decode


def plain_transcript(body: bytes) -> Transcript | None:
    """None for one that is odd in any way, down to the last of its words: it is for
    `TranscriptPayload`, which bears much and takes three times as long."""
    try:
        answer = _READ(body)
    except (DecodeError, UnicodeDecodeError):
        return None
    words = [
        word for word in answer.words or () if word.kind != SPACING and word.text and word.kind
    ]
    transcription_id = answer.transcription_id.strip()
    if not transcription_id or not _are_bare(words):
        return None
    return Transcript(
        transcription_id=transcription_id,
        text=answer.text or "",
        language_code=(answer.language_code or "").strip() or None,
        language_probability=answer.language_probability,
        words=tuple(words),
    )


def _are_bare(words: Sequence[Word]) -> bool:
    """Whether the speakers' names are as they are kept: none is empty, or has blanks around it."""
    return all(
        name is None or (name and name == name.strip()) for name in {word.speaker for word in words}
    )


# A call of ten hours has a transcript of 20 MB.
MOST_BYTES = 50 * MEGABYTE
BASE_URL = "https://api.elevenlabs.io"
FORM = {
    "model_id": "scribe_v1",
    "language_code": "fra",
    "timestamps_granularity": "word",
    "diarize": "true",
}


class SpeechUnavailableError(TransientError):
    """ElevenLabs gave no usable answer this time; `refusal` is what it said, if it said
    anything."""

    def __init__(
        self,
        message: str,
        *,
        refusal: ProviderRefusal | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(message, retry_after_seconds=retry_after_seconds)
        self.refusal = refusal


class SpeechRefusedError(PermanentError):
    """ElevenLabs refuses the audio or our request."""

    def __init__(self, message: str, *, refusal: ProviderRefusal) -> None:
        super().__init__(message)
        self.refusal = refusal


class SpeechAccessError(SpeechRefusedError, ProviderAccessError):
    """ElevenLabs does not accept our key for this, or the account is not paid for."""


class SpeechAnswerError(PermanentError):
    """ElevenLabs answered something that is not a transcript."""


@dataclass(frozen=True, kw_only=True)
class SpeechLimits:
    """The provider says nothing while it listens, so `read_seconds` covers its work on the longest
    audio."""

    connect_seconds: float = 10.0
    write_seconds: float = 60.0
    read_seconds: float = 600.0
    total_seconds: float = 900.0


SPEECH_LIMITS = SpeechLimits()


def usable_key(key: str | None) -> str:
    return keys.usable_key(key, "ElevenLabs", "ELEVENLABS_API_KEY")


class ElevenLabsSpeechToText:
    """PermanentError already when it is made without a usable key."""

    def __init__(  # noqa: PLR0913  what two connections need, by name
        self,
        api_key: str | None,
        base_url: str = BASE_URL,
        *,
        now: Callable[[], datetime],
        at_once: int = 10,
        limits: SpeechLimits = SPEECH_LIMITS,
        audio_limits: AudioLimits = AUDIO_LIMITS,
        audio_origins: Collection[str] = (),
        meter: Meter | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        audio_transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.at_once = at_once
        self._key = usable_key(api_key)
        self._now = now
        self._total_seconds = limits.total_seconds
        meter = meter or Meter()
        self._audio = AudioHosts(
            now=now,
            limits=audio_limits,
            guard=audio_guard(audio_origins),
            connections=at_once,
            meter=meter,
            transport=audio_transport,
        )
        self._form_url = httpx.URL(base_url.rstrip("/") + "/v1/speech-to-text")
        self._http = HttpClient(
            Observation("speech-to-text", meter, tells_id=True),
            headers={"xi-api-key": self._key},
            timeout=httpx.Timeout(
                connect=limits.connect_seconds,
                read=limits.read_seconds,
                write=limits.write_seconds,
                pool=None,
            ),
            transport=transport,
            connections=at_once,
        )

    async def transcribe(
        self, audio_url: str, *, turn: Callable[[], Awaitable[None]]
    ) -> Transcript:
        async with self._audio.recording(audio_url) as audio:
            await turn()
            body = await self._heard(audio)
        return _understood(without_nul(body))

    async def check(self) -> None:
        # A form without a recording costs nothing: the key is looked at first, the form is refused
        # after.
        try:
            await self._answer(self._http.build_request("POST", self._form_url, data=FORM))
        except SpeechAccessError:
            raise
        except SpeechRefusedError:
            return

    async def aclose(self) -> None:
        await self._audio.aclose()
        await self._http.aclose()

    async def _heard(self, audio: FileIO) -> bytes:
        # httpx streams the form: 64 KiB of the file at a time.
        form = {"file": ("audio.mp3", audio, "audio/mpeg")}
        return await self._answer(
            self._http.build_request("POST", self._form_url, data=FORM, files=form)
        )

    async def _answer(self, request: httpx.Request) -> bytes:
        try:
            async with asyncio.timeout(self._total_seconds):
                answer = await self._http.call(request, MOST_BYTES)
        except (TimeoutError, httpx.TimeoutException):
            raise SpeechUnavailableError(
                "ElevenLabs speech-to-text failed: it did not answer in time."
            ) from None
        except BodyRefusedError as error:
            raise SpeechAnswerError(f"ElevenLabs response invalid ({error})") from None
        except httpx.HTTPError as error:
            # Only the kind: the error itself carries the headers, and the key with them.
            kind = type(error).__name__
            raise SpeechUnavailableError(
                f"ElevenLabs speech-to-text failed: it could not be reached ({kind})."
            ) from None
        if answer.is_success:
            return answer.body
        raise self._refused(answer)

    def _refused(self, answer: HttpAnswer) -> Exception:
        status = answer.status
        refusal = refusal_of(status, answer.body, self._key)
        if status in {408, 429} or status >= 500:
            wait = retry_after_seconds(answer.headers.get("Retry-After"), self._now())
            return SpeechUnavailableError(str(refusal), refusal=refusal, retry_after_seconds=wait)
        if status in {401, 402, 403}:
            hint = "the credit of the account" if status == 402 else "ELEVENLABS_API_KEY"
            return SpeechAccessError(f"{refusal} (check {hint})", refusal=refusal)
        return SpeechRefusedError(str(refusal), refusal=refusal)


def _understood(body: bytes) -> Transcript:
    plain = plain_transcript(body)
    if plain is not None:
        return plain
    try:
        payload = TranscriptPayload.of_json(body)
    except ValueError as error:
        where = (
            error.errors(include_url=False, include_input=False)[0]["loc"]
            if isinstance(error, ValidationError)
            else ()
        )
        wrong = f"unexpected value at {where[0]}" if where else "expected JSON object"
        raise SpeechAnswerError(f"ElevenLabs response invalid ({wrong})") from None
    if payload.transcription_id is None:
        raise SpeechAnswerError("Missing transcription_id from provider")
    return payload.to_transcript(payload.transcription_id)
