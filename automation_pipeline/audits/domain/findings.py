"""What an audit finds about a step: verdicts, control points, quotations. The French words are the reports' own."""

from dataclasses import dataclass
from enum import StrEnum

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
    """A quotation and where it stands: both indexes from 0. What is known of the recording is filled in by us."""

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
