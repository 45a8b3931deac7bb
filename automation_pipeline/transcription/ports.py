"""What this room needs of the outside world."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Protocol

from automation_pipeline.core.coordination import RateLimiter
from automation_pipeline.core.errors import PermanentError
from automation_pipeline.transcription.models import SpeechOptions, Transcript

BREAKER_SECONDS = 60.0


class ProviderAccessError(PermanentError):
    """The provider refuses the key or the account: every other recording would be refused too."""


class AccessBreaker:
    """Remembers for a minute that the provider refused the key, so that other recordings are not
    sent."""

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._now, self._until, self._reason = now, 0.0, ""

    def open(self, reason: str) -> None:
        self._until, self._reason = self._now() + BREAKER_SECONDS, reason

    def check(self) -> None:
        """ProviderAccessError while it is open."""
        if self._now() < self._until:
            raise ProviderAccessError(
                f"Not sent: the provider refused the key a moment ago. {self._reason}"
            )


class SpeechToText(Protocol):
    """The provider that turns recordings into text. Attempts and waits are the caller's: nothing is
    repeated here."""

    @property
    def at_once(self) -> int:
        """How many recordings it takes at the same time from one process."""
        ...

    async def transcribe(
        self, audio_url: str, *, turn: Callable[[], Awaitable[None]]
    ) -> Transcript:
        """What is said in the audio at this address: at most one call of the provider, none if
        there is no audio. `turn` is awaited once, when the audio is here and nothing but the call
        is left to do.

        TransientError: the audio's host or the provider gave no answer this time; its
        `retry_after_seconds` is the wait that was asked for, if any. PermanentError: another
        attempt would end the same way: no such audio, not an http(s) address, too big, the provider
        refuses the key or the audio, its answer cannot be understood or has no transcription id.
        Cancelled, it leaves nothing behind. No text holds the key or any part of the address.
        """
        ...

    async def check(self) -> None:
        """Nothing, when the provider answers and accepts our key; else an error that says what is
        wrong."""
        ...


@dataclass(frozen=True)
class SpeechProvider:
    """Speech-to-text as we may use it: how many calls a minute, of all processes, and how hard to
    try."""

    speech: SpeechToText
    limiter: RateLimiter
    options: SpeechOptions
    breaker: AccessBreaker = field(default_factory=AccessBreaker)
