"""Values of transcription: a run works on the recordings of one fiche, one task per recording, and
produces transcripts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum
from typing import Annotated, cast

from msgspec import Struct
from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.events import LogLevel
from automation_pipeline.core.json_model import Count, JsonModel, Moment, parse
from automation_pipeline.core.retry import Backoff
from automation_pipeline.fiches.models.days import DayFinding
from automation_pipeline.fiches.models.fiches import RequestedFicheIds
from automation_pipeline.fiches.rules import never_requested


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
    """A completed run attempted every recording, and some may have failed. A failed run could not be
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
class TranscriptionPlan:
    """What a run transcribes: `targets` in the order of the calls, including those without a URL, which
    fail."""

    total: int
    already_transcribed: int
    targets: tuple[PlannedRecording, ...]
    renew_before: datetime | None = None


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
class PlannedRun:
    """A run that has just got its plan; `run_id` is the request's own or that of a joined run."""

    run_id: str
    request: TranscriptionRunRequest
    plan: TranscriptionPlan

    @property
    def summary(self) -> TranscriptionSummary:
        return TranscriptionSummary(
            self.run_id,
            self.request.fiche_id,
            TranscriptionStatus.RUNNING,
            self.plan.total,
            self.plan.already_transcribed,
            len(self.plan.targets),
        )


@dataclass(frozen=True)
class EndedRecordings:
    """The number of a run's recordings that have ended, by outcome."""

    processed: int
    cached: int = 0
    failed: int = 0

    def __add__(self, other: "EndedRecordings") -> "EndedRecordings":
        return EndedRecordings(
            self.processed + other.processed, self.cached + other.cached, self.failed + other.failed
        )


def why_incomplete(run: TranscriptionSummary, failed: Sequence[tuple[str, str]]) -> str | None:
    """Explain why a run that ended is incomplete, given its failed recordings and their reasons.

    None if every recording that has audio is transcribed: another attempt cannot help a recording
    without audio.
    """
    if run.error is not None:
        return run.error
    causes = [reason for _, reason in failed if reason != NO_URL]
    if not causes:
        return None
    number = (
        f"{len(causes)} of {run.total} recordings of fiche {run.fiche_id} could not be transcribed"
    )
    return f"{number}: {causes[0]}"


SPACING = "spacing"


class Word(Struct, frozen=True, gc=False, rename={"kind": "type", "speaker": "speaker_id"}):
    """A word with its times in seconds from the start of the audio.

    `kind` is the provider's type: `word`, `spacing`, `audio_event` and others. `speaker` is None
    where the provider does not recognise one. A msgspec structure, because a transcript has tens of
    thousands of words, decoded directly from the provider's JSON.
    """

    text: str
    start: float
    end: float
    kind: str
    speaker: str | None = None


@dataclass(frozen=True)
class Transcript:
    """The text of one recording. It is empty if nobody speaks."""

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


@dataclass(frozen=True)
class RequestHistory:
    """A fiche's requests of the day, whether one is active, and whether all recordings are transcribed."""

    requests_today: int = 0
    under_way: bool = False
    complete: bool = False


@dataclass(frozen=True)
class RequestedTranscription:
    """The outcome of a request: the run that works or will work on the fiche, and the key of the run
    request; None if no new one was filed."""

    fiche_id: str
    run_id: str | None
    key: str | None


def single_key(fiche_id: str, now: datetime) -> str:
    """Each request for a single fiche has its own key."""
    return f"transcribe-{fiche_id}-{round(now.timestamp() * 1000)}"


def batch_key(fiche_id: str, day: date, history: RequestHistory) -> str | None:
    """The key of a batch's request for a fiche, or None when it requests nothing new.

    A fiche is requested once per day, and again if its request ended without all transcripts.
    """
    key = f"transcribe-{fiche_id}-{day.isoformat()}"
    if history.requests_today == 0:
        return key
    return (
        None if history.under_way or history.complete else f"{key}-retry-{history.requests_today}"
    )


INVALID_BATCH = "Invalid request - fiche_ids array required"


def parse_priority(given: object) -> TranscriptionPriority:
    """Any unknown value is the normal priority."""
    return next(
        (priority for priority in TranscriptionPriority if priority == given),
        TranscriptionPriority.NORMAL,
    )


class TranscriptionBatchInput(JsonModel):
    model_config = ConfigDict(alias_generator=None)

    fiche_ids: RequestedFicheIds
    priority: Annotated[
        TranscriptionPriority, BeforeValidator(parse_priority, json_schema_input_type=str)
    ] = TranscriptionPriority.NORMAL


def parse_batch(given: Mapping[str, object]) -> TranscriptionBatchInput:
    """Raises InvalidInputError with one error per invalid id."""
    return parse(TranscriptionBatchInput, given, INVALID_BATCH)


INVALID_LOG_QUERY = "The logs cannot be shown"

RunId = Annotated[str, StringConstraints(strip_whitespace=True, max_length=200)]


class LogQuery(JsonModel):
    """`run_id` and `trace_id` are synonyms: the run that wrote the entry."""

    model_config = ConfigDict(alias_generator=None)

    run_id: RunId | None = None
    trace_id: RunId | None = None
    level: LogLevel | None = None
    since: Moment | None = None
    until: Moment | None = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 200
    offset: Count = 0

    @model_validator(mode="before")
    @classmethod
    def _ignore_empty(cls, given: object) -> object:
        if not isinstance(given, Mapping):
            return given
        return {
            name: value
            for name, value in cast("Mapping[str, object]", given).items()
            if value not in ("", None)
        }

    @property
    def trace(self) -> str | None:
        return self.run_id or self.trace_id


def parse_log_query(given: Mapping[str, object]) -> LogQuery:
    """Raises InvalidInputError with one error per invalid parameter."""
    try:
        return parse(LogQuery, given, INVALID_LOG_QUERY)
    except InvalidInputError as error:
        moments = [field for field, _ in error.fields if field in {"since", "until"}]
        if not moments:
            raise
        raise InvalidInputError(
            f"Invalid {moments[0]} (expected ISO 8601 date-time)", error.fields
        ) from None


MIN_COVERAGE = 0.95
COVERAGE_CHECK = "transcript_coverage"


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


def judge_transcripts(day: DayTranscripts, *, asked: bool) -> DayFinding:
    """Check the coverage. Without a sales list of the day (`asked`), the check fails."""
    if not asked:
        return never_requested((COVERAGE_CHECK,))[0]
    message = f"{day.transcribed} of {day.recordings} recordings of the day are transcribed."
    return DayFinding(COVERAGE_CHECK, day.coverage >= MIN_COVERAGE, message)
