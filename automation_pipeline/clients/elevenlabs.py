"""The client of ElevenLabs' speech-to-text. It implements `transcription.models.SpeechToText`."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from math import isfinite
from typing import Any, Self, cast

import httpx
from msgspec import DecodeError, Struct
from msgspec.json import Decoder
from pydantic import ValidationError
from pydantic_core import from_json

from automation_pipeline.clients.audio import (
    AUDIO_LIMITS,
    AudioDownloader,
    AudioLimits,
    audio_guard,
)
from automation_pipeline.clients.http import (
    MEGABYTE,
    BodyRefusedError,
    HttpAnswer,
    HttpClient,
    LenientNumber,
    LenientText,
    Observation,
    Payload,
    number_or_none,
    parse_refusal,
    usable_key,
    without_nul,
)
from automation_pipeline.core.errors import PermanentError, TransientError
from automation_pipeline.core.metrics import Meter
from automation_pipeline.core.retry import is_transient_status, retry_after_seconds
from automation_pipeline.transcription.models import SPACING, ProviderAccessError, Transcript, Word


def _words(entries: Iterable[object]) -> Iterator[Word]:
    """Skips spacings and words without text, times or type. A transcript has tens of thousands of
    words, too many for a pydantic model per word."""
    for entry in entries:
        if not isinstance(entry, dict):
            continue
        fields = cast("dict[str, object]", entry)
        if (kind := fields.get("type")) == SPACING:
            continue
        text, start, end, speaker = (
            fields.get("text"),
            fields.get("start"),
            fields.get("end"),
            fields.get("speaker_id"),
        )
        if not (isinstance(text, str) and text and isinstance(kind, str) and kind):
            continue
        if not (type(start) is float and type(end) is float and isfinite(start) and isfinite(end)):
            start, end = number_or_none(start), number_or_none(end)
            if start is None or end is None:
                continue
        yield Word(
            text, start, end, kind, (speaker.strip() or None) if isinstance(speaker, str) else None
        )


class TranscriptPayload(Payload):
    """Unusable words are skipped; the rest of the transcript stays."""

    transcription_id: LenientText = None
    text: str | None = None
    language_code: LenientText = None
    language_probability: LenientNumber = None
    words: list[Any] | None = None  # `_words` checks each

    @classmethod
    def of_json(cls, body: bytes) -> Self:
        """Raises ValueError if it is not JSON, ValidationError if a field has another type. Parsing
        first is twice as fast as `model_validate_json`."""
        return cls.model_validate(from_json(body))

    def to_transcript(self, transcription_id: str) -> Transcript:
        return Transcript(
            transcription_id=transcription_id,
            text=self.text or "",
            language_code=self.language_code,
            language_probability=self.language_probability,
            words=tuple(_words(self.words or ())),
        )


class _PlainTranscript(Struct):
    transcription_id: str
    text: str | None = None
    language_code: str | None = None
    language_probability: float | None = None
    words: list[Word] | None = None


_decode_plain = Decoder(_PlainTranscript).decode


def plain_transcript(body: bytes) -> Transcript | None:
    """Fast parser: None if anything is irregular, even a single word. `TranscriptPayload` then
    parses it leniently, which takes three times as long."""
    try:
        answer = _decode_plain(body)
    except (DecodeError, UnicodeDecodeError):
        return None
    words = [
        word for word in answer.words or () if word.kind != SPACING and word.text and word.kind
    ]
    transcription_id = answer.transcription_id.strip()
    speakers = {word.speaker for word in words} - {None}
    if not transcription_id or any(
        not name or name != name.strip() for name in speakers if name is not None
    ):
        return None
    return Transcript(
        transcription_id=transcription_id,
        text=answer.text or "",
        language_code=(answer.language_code or "").strip() or None,
        language_probability=answer.language_probability,
        words=tuple(words),
    )


# The transcript of a ten-hour call is 20 MB.
MAX_BYTES = 50 * MEGABYTE
BASE_URL = "https://api.elevenlabs.io"
FORM = {
    "model_id": "scribe_v1",
    "language_code": "fra",
    "timestamps_granularity": "word",
    "diarize": "true",
}


class SpeechRefusedError(PermanentError):
    """ElevenLabs accepts the API key, but refuses the audio or the request."""


@dataclass(frozen=True, kw_only=True)
class SpeechLimits:
    """The provider sends nothing while it transcribes, so `read_seconds` covers the longest audio."""

    connect_seconds: float = 10.0
    write_seconds: float = 60.0
    read_seconds: float = 600.0
    total_seconds: float = 900.0


SPEECH_LIMITS = SpeechLimits()


class ElevenLabsSpeechToText:
    """The constructor raises PermanentError if the API key is missing or unusable."""

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
        self._key = usable_key(api_key, "ElevenLabs", "ELEVENLABS_API_KEY")
        self._now = now
        self._total_seconds = limits.total_seconds
        meter = meter or Meter()
        self._audio = AudioDownloader(
            now=now,
            limits=audio_limits,
            guard=audio_guard(audio_origins),
            connections=at_once,
            meter=meter,
            transport=audio_transport,
        )
        self._form_url = httpx.URL(base_url.rstrip("/") + "/v1/speech-to-text")
        self._http = HttpClient(
            Observation("speech-to-text", meter, is_trusted=True),
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
        self, audio_url: str, *, before_call: Callable[[], Awaitable[None]]
    ) -> Transcript:
        async with self._audio.recording(audio_url) as audio:
            await before_call()
            # httpx streams the form, 64 KiB of the file at a time.
            form = {"file": ("audio.mp3", audio, "audio/mpeg")}
            body = await self._send(
                self._http.build_request("POST", self._form_url, data=FORM, files=form)
            )
        return parse_transcript(without_nul(body))

    async def check(self) -> None:
        # A form without a recording costs nothing: the provider checks the key first and then refuses
        # the form.
        with suppress(SpeechRefusedError):
            await self._send(self._http.build_request("POST", self._form_url, data=FORM))

    async def aclose(self) -> None:
        await self._audio.aclose()
        await self._http.aclose()

    async def _send(self, request: httpx.Request) -> bytes:
        try:
            async with asyncio.timeout(self._total_seconds):
                answer = await self._http.call(request, MAX_BYTES)
        except (TimeoutError, httpx.TimeoutException):
            raise TransientError(
                "ElevenLabs speech-to-text failed: it did not answer in time."
            ) from None
        except BodyRefusedError as error:
            raise PermanentError(f"ElevenLabs response invalid ({error})") from None
        except httpx.HTTPError as error:
            # Only the type's name: the error itself contains the headers with the key.
            kind = type(error).__name__
            raise TransientError(
                f"ElevenLabs speech-to-text failed: it could not be reached ({kind})."
            ) from None
        if answer.is_success:
            return answer.body
        raise self._refusal(answer)

    def _refusal(self, answer: HttpAnswer) -> Exception:
        status = answer.status
        refusal = parse_refusal(status, answer.body, self._key)
        sentence = refusal.sentence("ElevenLabs speech-to-text failed")
        if is_transient_status(status):
            wait = retry_after_seconds(answer.headers.get("Retry-After"), self._now())
            return TransientError(sentence, retry_after_seconds=wait)
        if status in {401, 402, 403}:
            hint = "the credit of the account" if status == 402 else "ELEVENLABS_API_KEY"
            return ProviderAccessError(f"{sentence} (check {hint})")
        return SpeechRefusedError(sentence)


def parse_transcript(body: bytes) -> Transcript:
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
        raise PermanentError(f"ElevenLabs response invalid ({wrong})") from None
    if payload.transcription_id is None:
        raise PermanentError("Missing transcription_id from provider")
    return payload.to_transcript(payload.transcription_id)
