"""ElevenLabs' speech-to-text over HTTP: `transcription.ports.SpeechToText`. The audio comes by way of `audio`."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from io import FileIO

import httpx
from pydantic import ValidationError

from automation_pipeline.clients import keys
from automation_pipeline.clients.audio import AUDIO_LIMITS, AudioHosts, AudioLimits, audio_guard
from automation_pipeline.clients.crm_payloads import without_nul
from automation_pipeline.clients.elevenlabs_payloads import Refusal, TranscriptPayload, refusal_of
from automation_pipeline.clients.http import MEGABYTE, Answer, BodyRefusedError, HttpClient, Observation
from automation_pipeline.clients.transcript_json import plain_transcript
from automation_pipeline.core.errors import PermanentError, TransientError
from automation_pipeline.core.meter import Meter
from automation_pipeline.core.retry import retry_after_seconds
from automation_pipeline.transcription.domain.transcript import Transcript
from automation_pipeline.transcription.ports import ProviderAccessError

# A call of ten hours has a transcript of 20 MB.
MOST_BYTES = 50 * MEGABYTE
BASE_URL = "https://api.elevenlabs.io"
FORM = {"model_id": "scribe_v1", "language_code": "fra", "timestamps_granularity": "word", "diarize": "true"}


class SpeechUnavailableError(TransientError):
    """ElevenLabs gave no usable answer this time; `refusal` is what it said, if it said anything."""

    def __init__(
        self, message: str, *, refusal: Refusal | None = None, retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(message, retry_after_seconds=retry_after_seconds)
        self.refusal = refusal


class SpeechRefusedError(PermanentError):
    """ElevenLabs refuses the audio or our request."""

    def __init__(self, message: str, *, refusal: Refusal) -> None:
        super().__init__(message)
        self.refusal = refusal


class SpeechAccessError(SpeechRefusedError, ProviderAccessError):
    """ElevenLabs does not accept our key for this, or the account is not paid for."""


class SpeechAnswerError(PermanentError):
    """ElevenLabs answered something that is not a transcript."""


@dataclass(frozen=True, kw_only=True)
class SpeechLimits:
    """The provider says nothing while it listens, so `read_seconds` covers its work on the longest audio."""

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
                connect=limits.connect_seconds, read=limits.read_seconds, write=limits.write_seconds, pool=None
            ),
            transport=transport,
            connections=at_once,
        )

    async def transcribe(self, audio_url: str, *, turn: Callable[[], Awaitable[None]]) -> Transcript:
        async with self._audio.recording(audio_url) as audio:
            await turn()
            body = await self._heard(audio)
        return _understood(without_nul(body))

    async def check(self) -> None:
        # A form without a recording costs nothing: the key is looked at first, the form is refused after.
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
        return await self._answer(self._http.build_request("POST", self._form_url, data=FORM, files=form))

    async def _answer(self, request: httpx.Request) -> bytes:
        try:
            async with asyncio.timeout(self._total_seconds):
                answer = await self._http.call(request, MOST_BYTES)
        except (TimeoutError, httpx.TimeoutException):
            raise SpeechUnavailableError("ElevenLabs speech-to-text failed: it did not answer in time.") from None
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

    def _refused(self, answer: Answer) -> Exception:
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
            error.errors(include_url=False, include_input=False)[0]["loc"] if isinstance(error, ValidationError) else ()
        )
        wrong = f"unexpected value at {where[0]}" if where else "expected JSON object"
        raise SpeechAnswerError(f"ElevenLabs response invalid ({wrong})") from None
    if payload.transcription_id is None:
        raise SpeechAnswerError("Missing transcription_id from provider")
    return payload.to_transcript(payload.transcription_id)
