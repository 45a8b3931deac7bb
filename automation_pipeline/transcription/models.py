"""Values of transcription: a run works on the recordings of one fiche, one task per recording, and
produces transcripts. Also the port of the speech provider."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from time import monotonic
from typing import Protocol

from msgspec import Struct

from automation_pipeline.core.coordination import RateLimiter
from automation_pipeline.core.errors import PermanentError
from automation_pipeline.core.retry import Backoff


def is_transcribed(
    has_transcription: bool, transcribed_at: datetime | None, renew_before: datetime | None
) -> bool:
    """Whether the recording has a transcript that a run with this `renew_before` keeps."""
    if not has_transcription or renew_before is None:
        return has_transcription
    return transcribed_at is not None and transcribed_at >= renew_before


class TranscriptionPriority(StrEnum):
    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


# Waiting recordings are claimed in ascending order of urgency.
URGENCY: Mapping[TranscriptionPriority, int] = {
    TranscriptionPriority.HIGH: 0,
    TranscriptionPriority.NORMAL: 1,
    TranscriptionPriority.LOW: 2,
}


NO_URL = "No recording URL available"


class TranscriptionStatus(StrEnum):
    """A completed run attempted every recording, of which some may have failed. A failed run could not be
    attempted."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"


class TaskState(StrEnum):
    WAITING = "waiting"
    WORKING = "working"
    DONE = "done"
    CACHED = "cached"
    FAILED = "failed"


@dataclass(frozen=True)
class PlannedRecording:
    recording_id: int
    call_id: str
    url: str


@dataclass(frozen=True)
class TranscriptionSummary:
    """Counters of one run, which may differ from the current state of the fiche's recordings.
    `error` is the reason why the run could not be attempted."""

    run_id: str
    fiche_id: str
    status: TranscriptionStatus
    total: int
    already_transcribed: int
    target_total: int
    processed: int = 0
    cached: int = 0
    failed: int = 0
    error: str | None = None
    started_at: datetime | None = None

    @property
    def transcribed(self) -> int:
        return min(self.total, self.already_transcribed + self.processed - self.failed)

    @property
    def new(self) -> int:
        return self.processed - self.cached - self.failed

    @property
    def percentage(self) -> int:
        return round(100 * self.transcribed / self.total) if self.total else 100

    @property
    def is_planned(self) -> bool:
        """A run exists before its fiche is fetched and planned. A plan without targets completes the
        run at once, so a running run without targets has no plan yet."""
        return self.status is not TranscriptionStatus.RUNNING or self.target_total > 0

    @property
    def is_over(self) -> bool:
        return self.processed >= self.target_total


@dataclass(frozen=True)
class TranscriptionRunRequest:
    """A request for a run. Repeating it joins the run that it started."""

    run_id: str
    fiche_id: str
    priority: TranscriptionPriority
    dagster_run_id: str | None = None
    # Stored details that are newer are not fetched again. None fetches them.
    fresh_since: datetime | None = None
    # Transcripts that are older, by the database's clock, are replaced. None keeps all.
    renew_before: datetime | None = None


@dataclass(frozen=True)
class TranscriptionPlan:
    """What a run transcribes: `targets` in the order of the calls, including those without a URL,
    which fail."""

    total: int
    targets: tuple[PlannedRecording, ...] = ()

    def summary(self, request: TranscriptionRunRequest) -> TranscriptionSummary:
        """The run of the request when it has just got this plan."""
        return TranscriptionSummary(
            request.run_id,
            request.fiche_id,
            TranscriptionStatus.RUNNING,
            self.total,
            self.total - len(self.targets),
            len(self.targets),
        )


def why_incomplete(run: TranscriptionSummary, failed: Sequence[tuple[str, str]]) -> str | None:
    """Explain why a run that ended is incomplete, given its failed recordings and their reasons.

    None if every recording that has audio is transcribed: another attempt cannot help a recording
    without audio.
    """
    with_audio = [(call_id, reason) for call_id, reason in failed if reason != NO_URL]
    return why_not_all(run, with_audio)


def why_not_all(run: TranscriptionSummary, failed: Sequence[tuple[str, str]]) -> str | None:
    """Explain why a run that ended left these recordings without a transcript."""
    if run.error is not None or not failed:
        return run.error
    return (
        f"{len(failed)} of {run.total} recordings of fiche {run.fiche_id} could not be transcribed: "
        f"{failed[0][1]}"
    )


SPACING = "spacing"


class Word(Struct, frozen=True, gc=False, rename={"kind": "type", "speaker": "speaker_id"}):
    """A word with its times in seconds from the start of the audio.

    `kind` is the provider's type: `word`, `spacing`, `audio_event` and others. `speaker` is None if
    the provider does not recognise one. A msgspec structure, because a transcript has tens of
    thousands of words, which are decoded directly from the provider's JSON.
    """

    text: str
    start: float
    end: float
    kind: str
    speaker: str | None = None


@dataclass(frozen=True)
class Transcript:
    """The text of one recording. It is empty if the recording has no speech."""

    transcription_id: str
    text: str
    language_code: str | None
    language_probability: float | None
    words: tuple[Word, ...]


@dataclass(frozen=True)
class Chunk:
    """Up to ten messages of a transcript. Audits cite it by its index, which is the same for the same
    words."""

    index: int
    start: float
    end: float
    message_count: int
    speakers: tuple[str, ...]
    full_text: str


@dataclass(frozen=True)
class SpeechOptions:
    """Limits and retries of speech-to-text. A heartbeat extends leases every quarter of their length."""

    per_minute: int
    max_attempts: int
    backoff: Backoff
    lease_seconds: float
    per_fiche: int
    progress_every: int


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
        self, audio_url: str, *, before_call: Callable[[], Awaitable[None]]
    ) -> Transcript:
        """Transcribe the audio at this address, with at most one call to the provider.

        `before_call` is awaited once, after the audio is downloaded and right before the call. Raises
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


@dataclass(frozen=True)
class DayTranscripts:
    """How much of a day is transcribed. `failures` counts failed recordings by cause."""

    recordings: int
    transcribed: int
    minutes: float
    failures: Mapping[str, int]

    @property
    def coverage(self) -> float:
        return self.transcribed / self.recordings if self.recordings else 1.0
