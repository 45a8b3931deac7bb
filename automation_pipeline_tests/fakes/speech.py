"""A speech-to-text in memory (`transcription.models.SpeechToText`).
`transcription/test_speech_contract.py` runs it and the real client through the same tests."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from automation_pipeline.core.errors import AutomationError, PermanentError
from automation_pipeline.transcription.models import Transcript, Word

WORDS = (
    Word("Bonjour", 0.12, 0.58, "word", "speaker_0"),
    Word("madame", 0.6, 1.1, "word", "speaker_0"),
    Word("(rire)", 3.1, 3.6, "audio_event", "speaker_1"),
)


def transcript(
    transcription_id: str = "tr_1",
    *,
    text: str = "Bonjour madame (rire)",
    words: tuple[Word, ...] = WORDS,
) -> Transcript:
    return Transcript(transcription_id, text, "fra", 0.98, words)


async def no_rate_limit() -> None:
    """A rate limit without waits."""


class FakeSpeechToText:
    """Returns the known transcripts; for any other URL the result of `otherwise`, or a 404 error.

    `requests` lists the requested URLs in order, `calls` those that reached the provider: an error
    whose text starts with "Audio" comes from the audio host, before the rate limit. `max_concurrent`
    is the highest number of concurrent calls; `during_call` is awaited during each call.
    """

    def __init__(
        self,
        known: Mapping[str, Transcript] | None = None,
        *,
        at_once: int = 10,
        otherwise: Callable[[str], Transcript] | None = None,
        during_call: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        self.at_once = at_once
        self.requests: list[str] = []
        self.calls: list[str] = []
        self.max_concurrent = 0
        self._open = 0
        self._known = dict(known or {})
        self._has_default = otherwise is not None
        self._otherwise = otherwise or (lambda _: transcript())
        self._during_call = during_call
        self._once: dict[str, list[AutomationError]] = {}
        self._always: dict[str, AutomationError] = {}
        self._refusal: AutomationError | None = None

    def add(self, url: str, received: Transcript) -> None:
        self._known[url] = received

    def fail_once(self, url: str, *errors: AutomationError) -> None:
        """The next calls for this audio raise these errors, one error per call."""
        self._once.setdefault(url, []).extend(errors)

    def fail_always(self, url: str, error: AutomationError) -> None:
        self._always[url] = error

    def refuse_everything(self, error: AutomationError | None) -> None:
        """Every call raises this error, until it is called again with None."""
        self._refusal = error

    def call_count(self, url: str) -> int:
        """The number of calls to the provider for this URL."""
        return self.calls.count(url)

    async def check(self) -> None:
        if self._refusal:
            raise self._refusal

    async def transcribe(
        self, audio_url: str, *, before_call: Callable[[], Awaitable[None]]
    ) -> Transcript:
        self.requests.append(audio_url)
        error = self._error_for(audio_url) or self._missing(audio_url)
        if error and str(error).startswith("Audio"):
            raise error
        await before_call()
        self.calls.append(audio_url)
        self._open += 1
        self.max_concurrent = max(self.max_concurrent, self._open)
        try:
            await (self._during_call(audio_url) if self._during_call else asyncio.sleep(0))
        finally:
            self._open -= 1
        if error:
            raise error
        return self._known[audio_url] if audio_url in self._known else self._otherwise(audio_url)

    def _error_for(self, url: str) -> AutomationError | None:
        once = self._once.get(url)
        return self._refusal or (once.pop(0) if once else self._always.get(url))

    def _missing(self, url: str) -> AutomationError | None:
        if url in self._known:
            return None
        if not url.startswith(("http://", "https://")):
            return PermanentError("Audio download failed: only http and https addresses are taken.")
        return None if self._has_default else PermanentError("Audio download failed status=404")
