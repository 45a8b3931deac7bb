"""Values of an audit: request, status, transcripts, findings, reviews and reruns.

The French words are those of the reports."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from math import isfinite

from automation_pipeline.audits.models.chat import Usage
from automation_pipeline.audits.models.configs import AuditConfig, AuditStep
from automation_pipeline.core.retry import Backoff


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
        """No attempt is running."""
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
    """`failures` are the fiches whose audit failed, with the reason."""

    batch_id: str
    audit_config_id: int
    total: int
    succeeded: int
    failed: int
    started_at: datetime
    completed_at: datetime | None
    failures: Sequence[tuple[str, str]] = ()

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
    place: StepLocation
    instructions: str | None = None

    @property
    def event_id(self) -> str | None:
        """The part of the id that `rerun_id` made it from; None for any other id."""
        prefix = rerun_id(self.place, "")
        return self.rerun_id.removeprefix(prefix) if self.rerun_id.startswith(prefix) else None


@dataclass(frozen=True)
class CallRecording:
    """A recording of the fiche that the CRM still knows."""

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


UNKNOWN = "N/A"


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


@dataclass(frozen=True, kw_only=True)
class Citation:
    """A quotation and its position; both indexes count from 0. Gating fills in the recording's facts."""

    texte: str
    minutage: str
    minutage_secondes: float
    speaker: str
    recording_index: int
    chunk_index: int
    recording_date: str = UNKNOWN
    recording_time: str = UNKNOWN
    recording_url: str = UNKNOWN
    call_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class ControlPoint:
    point: str
    statut: Statut
    commentaire: str = ""
    citations: tuple[Citation, ...] = ()
    minutages: tuple[str, ...] = ()
    erreur_transcription_notee: bool = False
    variation_phonetique_utilisee: str | None = None


@dataclass(frozen=True, kw_only=True)
class StepFinding:
    """The model's `score` may exceed the step's weight."""

    traite: bool
    conforme: Conforme
    score: int
    niveau_conformite: Niveau
    points: tuple[ControlPoint, ...]
    commentaire_global: str = ""
    minutages: tuple[str, ...] = ()
    mots_cles_trouves: tuple[str, ...] = ()
    erreurs_transcription_tolerees: int = 0

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
    """A step without a usable answer. `usage` is what the attempts cost."""

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


@dataclass(frozen=True)
class StepHistory:
    """The reviews and the reruns of a step, as documents."""

    human_review: list[Mapping[str, object]] = field(default_factory=list[Mapping[str, object]])
    rerun_history: list[Mapping[str, object]] = field(default_factory=list[Mapping[str, object]])
