"""Ports of transcription: the speech-to-text provider."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Protocol

from automation_pipeline.core.coordination import RateLimiter
from automation_pipeline.core.errors import PermanentError
from automation_pipeline.transcription.models import SpeechOptions, Transcript

BREAKER_SECONDS = 60.0


class ProviderAccessError(PermanentError):
    """The provider refuses the key or the account, so every other recording would fail too."""


class AccessBreaker:
    """A circuit breaker: for a minute after the provider refuses the key, nothing is sent."""

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._now, self._until, self._reason = now, 0.0, ""

    def open(self, reason: str) -> None:
        self._until, self._reason = self._now() + BREAKER_SECONDS, reason

    def check(self) -> None:
        """Raise ProviderAccessError while the breaker is open."""
        if self._now() < self._until:
            raise ProviderAccessError(
                f"Not sent: the provider has just refused the key. {self._reason}"
            )


class SpeechToText(Protocol):
    """The provider that transcribes recordings. The caller retries and waits; the adapter makes one call."""

    @property
    def at_once(self) -> int:
        """The number of recordings that one process may send at the same time."""
        ...

    async def transcribe(
        self, audio_url: str, *, turn: Callable[[], Awaitable[None]]
    ) -> Transcript:
        """Transcribe the audio at this address, with at most one call to the provider.

        `turn` is awaited once, after the audio is downloaded and right before the call. Raises
        TransientError when the audio's host or the provider fails temporarily, with the requested
        `retry_after_seconds`, if any. Raises PermanentError when another attempt would fail too: the
        audio is missing or too big, the address is not http(s), the provider refuses the key or the
        audio, or its answer is invalid. No message contains the key or a part of the address.
        """
        ...

    async def check(self) -> None:
        """Raise an AutomationError unless the provider answers and accepts the key."""
        ...


@dataclass(frozen=True)
class SpeechProvider:
    """Speech-to-text with the rate limit that all processes share, and the retry options."""

    speech: SpeechToText
    limiter: RateLimiter
    options: SpeechOptions
    breaker: AccessBreaker = field(default_factory=AccessBreaker)
