"""What an audit finds: verdicts, control points and citations per step, and what gating did to
them.

The French words are those of the reports.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from automation_pipeline.audits.models.audits import TranscriptMode
from automation_pipeline.audits.models.chat import Usage
from automation_pipeline.audits.models.configs import AuditStep

UNKNOWN = "N/A"


class Statut(StrEnum):
    """Of a control point."""

    PRESENT = "PRESENT"
    ABSENT = "ABSENT"
    PARTIEL = "PARTIEL"
    NON_APPLICABLE = "NON_APPLICABLE"


class Conforme(StrEnum):
    """Of a step."""

    CONFORME = "CONFORME"
    PARTIEL = "PARTIEL"
    NON_CONFORME = "NON_CONFORME"


class Niveau(StrEnum):
    """Of a step or of a whole audit; PENDING until the audit has one."""

    PENDING = "PENDING"
    EXCELLENT = "EXCELLENT"
    BON = "BON"
    ACCEPTABLE = "ACCEPTABLE"
    INSUFFISANT = "INSUFFISANT"
    REJET = "REJET"


@dataclass(frozen=True, kw_only=True)
class Citation:
    """A quotation and where it stands: both indexes from 0. What is known of the recording is
    filled in by us."""

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
    """`score` is as it was given, and may exceed the step's weight."""

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
    """What gating did to a step. `total_citations` are those it was given."""

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
class AuditGating:
    """What gating did to an audit."""

    total_citations: int = 0
    removed_citations: int = 0
    downgraded_control_points: int = 0
    steps_score_reduced: int = 0
    steps_conforme_adjusted: int = 0

    @classmethod
    def of(cls, steps: Sequence[GatingStats]) -> "AuditGating":
        return cls(
            sum(step.total_citations for step in steps),
            sum(step.removed_citations for step in steps),
            sum(step.downgraded_control_points for step in steps),
            sum(step.step_score_reduced for step in steps),
            sum(step.step_conforme_adjusted for step in steps),
        )


@dataclass(frozen=True)
class GatedFinding:
    finding: StepFinding
    stats: GatingStats


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """`missing` control points were not dealt with by the model, `unknown` ones were not asked
    for."""

    step: AuditStep
    gated: GatedFinding
    usage: Usage
    mode: TranscriptMode
    missing: int = 0
    unknown: int = 0

    @property
    def finding(self) -> StepFinding:
        return self.gated.finding


@dataclass(frozen=True, kw_only=True)
class UnjudgedStep:
    """A step that got no usable answer, and why: it has no verdict. `usage` is what was spent on it
    in vain."""

    step: AuditStep
    error: str
    usage: Usage


@dataclass(frozen=True, kw_only=True)
class MissingStep:
    """An unjudged step as it is kept."""

    position: int
    name: str
    severity: str
    is_critical: bool
    weight: int
    error: str
    usage: Usage


@dataclass(frozen=True, kw_only=True)
class StoredStep:
    """A judged step as it is kept."""

    position: int
    name: str
    severity: str
    is_critical: bool
    weight: int
    finding: StepFinding
    usage: Usage
    stats: GatingStats
