"""Values of an audit: its request, status and summary, the calls that it reads, its options."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from math import isfinite

from automation_pipeline.core.retry import Backoff


class AuditStatus(StrEnum):
    """`completed`: every step was judged on every recording that can be heard. `incomplete`: a step
    could not be judged or a recording has no transcript, which says nothing about the calls: the
    next attempt finishes it. `failed`: there is nothing to judge, or the work on it ended."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    INCOMPLETE = "incomplete"
    FAILED = "failed"


ENDED = frozenset({AuditStatus.COMPLETED, AuditStatus.INCOMPLETE, AuditStatus.FAILED})
FINAL = frozenset({AuditStatus.COMPLETED, AuditStatus.FAILED})


@dataclass(frozen=True, kw_only=True)
class FicheAuditRequest:
    """A request for an audit. Repeating it continues the audit that it started, or returns the ended
    one."""

    tracking_id: str
    fiche_id: str
    audit_config_id: int
    use_rlm: bool = False
    trigger_source: str | None = None
    user_id: str | None = None
    schedule_id: int | None = None
    run_id: int | None = None
    dagster_run_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class AuditSummary:
    """The status of an audit with its counters.

    Only a completed audit has a score; `niveau` is PENDING before. `done` counts judged steps,
    `failed` those that could not be judged. `error` says why the audit failed or is incomplete.
    """

    audit_id: int
    tracking_id: str
    fiche_id: str
    audit_config_id: int
    status: AuditStatus
    niveau: str
    score_percentage: float | None
    steps: int
    done: int
    failed: int
    error: str | None = None

    @property
    def is_over(self) -> bool:
        """No attempt is running."""
        return self.status in ENDED

    @property
    def is_final(self) -> bool:
        """Another attempt changes nothing."""
        return self.status in FINAL


@dataclass(frozen=True)
class StepLocation:
    """A step by its position or, given a `point`, one of its control points. Both count from 1."""

    audit_id: int
    position: int
    point: int | None = None


@dataclass(frozen=True)
class RequestedAudit:
    """The outcome of a request. `tracking_id` is known at once, the audit's own id when it starts."""

    fiche_id: str
    tracking_id: str


def single_id(fiche_id: str, config_id: int, now: datetime) -> str:
    """Each request for a single fiche has a tracking id of its own."""
    return f"audit-{fiche_id}-{config_id}-{round(now.timestamp() * 1000)}"


def batch_item_id(batch_id: str, fiche_id: str, config_id: int) -> str:
    return f"batch-{batch_id}-audit-{fiche_id}-{config_id}"


def day_id(day: str, fiche_id: str, config_id: int, attempt: str) -> str:
    """`attempt` identifies the Dagster run, so that a later materialisation retries failed audits."""
    return f"day-{day}-audit-{fiche_id}-{config_id}-{attempt}"


def rerun_id(audit_id: int, position: int, point: int | None, event_id: str) -> str:
    of_point = f"-cp-{point}" if point is not None else ""
    return f"rerun-{audit_id}-{position}{of_point}-{event_id}"


@dataclass(frozen=True)
class CallRecording:
    """A recording of the fiche that the CRM still knows."""

    call_id: str
    has_audio: bool
    has_transcript: bool


def is_required(call: CallRecording) -> bool:
    """An audit needs the transcripts of all recordings with audio; others can never be transcribed."""
    return call.has_audio


@dataclass(frozen=True)
class TranscriptCoverage:
    """The call ids of a fiche: transcribed, missing a transcript, or without audio and not required."""

    transcribed: tuple[str, ...]
    missing: tuple[str, ...]
    without_audio: tuple[str, ...]

    @property
    def required(self) -> int:
        return len(self.transcribed) + len(self.missing)

    @property
    def recordings(self) -> int:
        return self.required + len(self.without_audio)

    @property
    def is_whole(self) -> bool:
        return not self.missing

    @property
    def sentence(self) -> str:
        left_out = f" ({len(self.without_audio)} more without audio)" if self.without_audio else ""
        return f"transcripts of {len(self.transcribed)} of {self.required} recordings{left_out}"


def coverage_of(calls: Sequence[CallRecording]) -> TranscriptCoverage:
    required = [call for call in calls if is_required(call)]
    return TranscriptCoverage(
        transcribed=tuple(call.call_id for call in required if call.has_transcript),
        missing=tuple(call.call_id for call in required if not call.has_transcript),
        without_audio=tuple(call.call_id for call in calls if not is_required(call)),
    )


def coverage_document(coverage: TranscriptCoverage) -> Mapping[str, object]:
    return {
        "recordings": coverage.recordings,
        "required": coverage.required,
        "transcribed": len(coverage.transcribed),
        "missing": list(coverage.missing),
        "without_audio": list(coverage.without_audio),
    }


def steps_sentence(judged: int, steps: int) -> str:
    return f"{judged} of {steps} steps judged"


class TranscriptMode(StrEnum):
    """In the prompt, or through the tools of `tools`."""

    PROMPT = "prompt"
    TOOLS = "tools"


@dataclass(frozen=True)
class GatingOptions:
    """Which quotations count as evidence."""

    enabled: bool = True
    min_quote_characters: int = 12


@dataclass(frozen=True)
class ExcerptOptions:
    """Whether steps that verify the product read an excerpt, and of how many chunks."""

    enabled: bool = True
    max_chunks: int = 40


@dataclass(frozen=True)
class AuditOptions:
    """`attempts` are calls of the model that get no answer; `repairs` are answers that break the
    schema and are sent back. `rounds` bounds the tool mode, its last answer included."""

    per_minute: int
    attempts: int
    backoff: Backoff
    steps_at_once: int
    max_prompt_characters: int
    lease_seconds: float
    repairs: int = 2
    rounds: int = 8
    gating: GatingOptions = GatingOptions()
    excerpt: ExcerptOptions = ExcerptOptions()


@dataclass(frozen=True)
class TimelineChunk:
    """`index` from 0 in its recording; times in seconds from the recording's start."""

    index: int
    start: float
    end: float
    message_count: int
    speakers: tuple[str, ...]
    full_text: str


@dataclass(frozen=True, kw_only=True)
class TimelineRecording:
    """`index` from 0 in the timeline."""

    index: int
    call_id: str
    date: str
    time: str
    url: str
    duration_seconds: int
    from_number: str
    to_number: str
    chunks: tuple[TimelineChunk, ...]


@dataclass(frozen=True)
class Timeline:
    recordings: tuple[TimelineRecording, ...]

    def recording(self, index: int) -> TimelineRecording | None:
        return self.recordings[index] if 0 <= index < len(self.recordings) else None

    def chunk(self, recording_index: int, chunk_index: int) -> TimelineChunk | None:
        recording = self.recording(recording_index)
        if recording is None:
            return None
        return next((chunk for chunk in recording.chunks if chunk.index == chunk_index), None)

    @property
    def chunk_count(self) -> int:
        return sum(len(recording.chunks) for recording in self.recordings)


def minutage(seconds: float) -> str:
    """MM:SS, the second having begun. Minutes go on after 59: three hours are 180:00."""
    whole = int(seconds) if isfinite(seconds) and seconds > 0 else 0
    return f"{whole // 60:02d}:{whole % 60:02d}"
