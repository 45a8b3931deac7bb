"""The findings of an audit: verdicts, control points and citations per step, and their history.

The French words are those of the reports.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from automation_pipeline.audits.models.audits import TranscriptMode
from automation_pipeline.audits.models.chat import Usage
from automation_pipeline.audits.models.configs import AuditStep

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
