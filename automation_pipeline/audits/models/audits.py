"""Values of an audit: request, status, transcripts, findings, reviews and reruns.

The French words are those of the reports."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from math import isfinite
from typing import Annotated

from pydantic import BeforeValidator, Field, StrictBool
from pydantic_core import PydanticCustomError

from automation_pipeline.audits.models.chat import NonNegative, Seconds, Text, Usage, Whole
from automation_pipeline.audits.models.configs import AuditConfig, AuditStep
from automation_pipeline.core.retry import Backoff

UNKNOWN = "N/A"


class AuditStatus(StrEnum):
    """`completed`: every step was judged, on the transcripts of every recording with audio.
    `incomplete`: a step or a transcript is missing, which is no evidence about the calls; the next
    attempt continues. `failed`: there is nothing to judge, or the work on the audit stopped."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    INCOMPLETE = "incomplete"
    FAILED = "failed"


ENDED = frozenset({AuditStatus.COMPLETED, AuditStatus.INCOMPLETE, AuditStatus.FAILED})


class TranscriptMode(StrEnum):
    """The model reads the transcripts in the prompt, or with the tools of `rules.tools`."""

    PROMPT = "prompt"
    TOOLS = "tools"


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
        return self.status in ENDED

    @property
    def is_final(self) -> bool:
        """Another attempt changes nothing."""
        return self.status in {AuditStatus.COMPLETED, AuditStatus.FAILED}


@dataclass(frozen=True, kw_only=True)
class AuditRecord:
    """A stored audit, with the configuration as it was when the audit started."""

    summary: AuditSummary
    config: AuditConfig
    version: int
    is_latest: bool
    is_deleted: bool
    use_rlm: bool
    transcript_mode: TranscriptMode
    timeline_fingerprint: str | None
    started_at: datetime
    completed_at: datetime | None
    trigger_source: str | None
    automation_schedule_id: int | None
    automation_run_id: int | None
    prospect_name: str
    groupe: str | None
    recordings: int
    chunks: int
    coverage: Mapping[str, object] | None
    # The token of the last claim.
    fence: int

    def duration_ms(self, until: datetime) -> int:
        return round(1000 * (until - self.started_at).total_seconds())


@dataclass(frozen=True)
class AuditBatchSummary:
    batch_id: str
    total: int
    succeeded: int
    failed: int
    started_at: datetime
    completed_at: datetime | None

    @property
    def ended(self) -> int:
        return self.succeeded + self.failed


@dataclass(frozen=True)
class StepLocation:
    """A step by its position or, given a `point`, one of its control points. Both count from 1."""

    audit_id: int
    position: int
    point: int | None = None


def rerun_id(location: StepLocation, event_id: str) -> str:
    of_point = f"-cp-{location.point}" if location.point is not None else ""
    return f"rerun-{location.audit_id}-{location.position}{of_point}-{event_id}"


@dataclass(frozen=True, kw_only=True)
class Rerun:
    """A request to judge a step or a control point again. Repeating it by its `rerun_id` changes
    nothing."""

    rerun_id: str
    location: StepLocation
    instructions: str | None = None

    @property
    def event_id(self) -> str | None:
        """The part of the id that `rerun_id` made it from; None for any other id."""
        prefix = rerun_id(self.location, "")
        return self.rerun_id.removeprefix(prefix) if self.rerun_id.startswith(prefix) else None


@dataclass(frozen=True)
class CallRecording:
    call_id: str
    has_audio: bool
    has_transcript: bool


@dataclass(frozen=True)
class TranscriptCoverage:
    """The call ids of a fiche. An audit needs the transcripts of all recordings with audio; others can never
    be transcribed."""

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

    @property
    def document(self) -> Mapping[str, object]:
        return {
            "recordings": self.recordings,
            "required": self.required,
            "transcribed": len(self.transcribed),
            "missing": list(self.missing),
            "without_audio": list(self.without_audio),
        }


def coverage_of(calls: Sequence[CallRecording]) -> TranscriptCoverage:
    required = [call for call in calls if call.has_audio]
    return TranscriptCoverage(
        transcribed=tuple(call.call_id for call in required if call.has_transcript),
        missing=tuple(call.call_id for call in required if not call.has_transcript),
        without_audio=tuple(call.call_id for call in calls if not call.has_audio),
    )


@dataclass(frozen=True)
class TimelineChunk:
    """A part of a transcript. `index` counts from 0 in its recording; times are seconds from the
    recording's start."""

    index: int
    start: float
    end: float
    message_count: int
    speakers: tuple[str, ...]
    full_text: str


@dataclass(frozen=True, kw_only=True)
class TimelineRecording:
    """A recording with its transcript. `index` counts from 0 in the timeline."""

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
    """The transcripts of a fiche's calls, in the order of the calls."""

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


@dataclass(frozen=True)
class TranscriptSnapshot:
    """`timeline`: recordings whose transcript contains speech. `coverage`: which recordings the
    audit needs, and which of them have a transcript. `product`: what was sold, according to the
    CRM. `fingerprint`: equal for equal calls with equal words, so that judged steps can be kept."""

    timeline: Timeline
    coverage: TranscriptCoverage
    product: str | None
    fingerprint: str


def minutage(seconds: float) -> str:
    """MM:SS, rounded down. Minutes continue after 59: three hours are 180:00."""
    whole = int(seconds) if isfinite(seconds) and seconds > 0 else 0
    return f"{whole // 60:02d}:{whole % 60:02d}"


@dataclass(frozen=True)
class GatingOptions:
    enabled: bool = True
    min_quote_characters: int = 12


@dataclass(frozen=True)
class ExcerptOptions:
    """Whether steps that verify the product read an excerpt, and of how many chunks."""

    enabled: bool = True
    max_chunks: int = 40


@dataclass(frozen=True)
class AuditOptions:
    """`attempts` bounds the calls that get no answer, `repairs` the invalid answers that are sent
    back, and `rounds` the calls in tool mode, including the last answer."""

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


class Statut(StrEnum):
    """The verdict on a control point."""

    PRESENT = "PRESENT"
    ABSENT = "ABSENT"
    PARTIEL = "PARTIEL"
    NON_APPLICABLE = "NON_APPLICABLE"


class Conforme(StrEnum):
    """The verdict on a step."""

    CONFORME = "CONFORME"
    PARTIEL = "PARTIEL"
    NON_CONFORME = "NON_CONFORME"


class Niveau(StrEnum):
    """The grade of a step or of a whole audit; PENDING until the audit has one."""

    PENDING = "PENDING"
    EXCELLENT = "EXCELLENT"
    BON = "BON"
    ACCEPTABLE = "ACCEPTABLE"
    INSUFFISANT = "INSUFFISANT"
    REJET = "REJET"


def _grade(given: object) -> object:
    """Refuse PENDING: a judged step has a grade."""
    if given == Niveau.PENDING or given not in list(Niveau):
        *others, last = (repr(niveau.value) for niveau in Niveau if niveau is not Niveau.PENDING)
        expected = f"{', '.join(others)} or {last}"
        raise PydanticCustomError("enum", "must be {expected}", {"expected": expected})
    return given


@dataclass(frozen=True, kw_only=True)
class Citation:
    """A quotation and its position; both indexes count from 0. Gating sets the fields of the recording."""

    texte: Text
    minutage: Text
    minutage_secondes: Seconds
    speaker: Text
    recording_index: Whole
    chunk_index: Whole
    recording_date: Text = UNKNOWN
    recording_time: Text = UNKNOWN
    recording_url: Text = UNKNOWN
    call_id: Annotated[str | None, BeforeValidator(lambda _: None)] = None  # only gating sets it


@dataclass(frozen=True, kw_only=True)
class ControlPoint:
    point: Text
    statut: Statut
    commentaire: Text
    citations: tuple[Citation, ...]
    minutages: tuple[Text, ...]
    erreur_transcription_notee: StrictBool
    variation_phonetique_utilisee: Text | None


@dataclass(frozen=True, kw_only=True)
class StepFinding:
    """The verdict on a step. The model's answer is parsed into it, so that the fields without a default are
    those that an answer must have. The model's `score` may exceed the step's weight."""

    traite: StrictBool
    conforme: Conforme
    minutages: tuple[Text, ...]
    score: NonNegative
    points: Annotated[tuple[ControlPoint, ...], Field(validation_alias="points_controle")]
    mots_cles_trouves: tuple[Text, ...]
    commentaire_global: Text
    niveau_conformite: Annotated[Niveau, BeforeValidator(_grade)]
    erreurs_transcription_tolerees: NonNegative

    @property
    def citations(self) -> int:
        return sum(len(point.citations) for point in self.points)


@dataclass(frozen=True)
class GatingStats:
    """What gating did to a step. `total_citations` counts those of the model."""

    total_citations: int
    removed_citations: int = 0
    downgraded_control_points: int = 0
    step_score_reduced: bool = False
    step_conforme_adjusted: bool = False

    def __add__(self, other: "GatingStats") -> "GatingStats":
        return GatingStats(
            self.total_citations + other.total_citations,
            self.removed_citations + other.removed_citations,
            self.downgraded_control_points + other.downgraded_control_points,
            self.step_score_reduced or other.step_score_reduced,
            self.step_conforme_adjusted or other.step_conforme_adjusted,
        )


@dataclass(frozen=True)
class GatedFinding:
    finding: StepFinding
    stats: GatingStats


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """A judged step. `missing` counts the control points that the model omitted, `unknown` those
    that were not in the question."""

    step: AuditStep
    finding: StepFinding
    stats: GatingStats
    usage: Usage
    mode: TranscriptMode
    missing: int = 0
    unknown: int = 0


@dataclass(frozen=True, kw_only=True)
class UnjudgedStep:
    step: AuditStep
    error: str
    usage: Usage


@dataclass(frozen=True, kw_only=True)
class _StepOfAudit:
    position: int
    name: str
    severity: str
    is_critical: bool
    weight: int
    usage: Usage


@dataclass(frozen=True, kw_only=True)
class StoredStep(_StepOfAudit):
    finding: StepFinding
    stats: GatingStats


@dataclass(frozen=True, kw_only=True)
class MissingStep(_StepOfAudit):
    """A stored step that could not be judged."""

    error: str
