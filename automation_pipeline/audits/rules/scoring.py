"""Scores and verdicts: of a step from its control points, of an audit from its steps."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import floor

from automation_pipeline.audits.models.findings import Conforme, ControlPoint, Niveau, Statut

_WORTH = {Statut.PRESENT: Fraction(1), Statut.PARTIEL: Fraction(1, 2), Statut.ABSENT: Fraction(0)}
_FROM_STRICT = (Conforme.NON_CONFORME, Conforme.PARTIEL, Conforme.CONFORME)
_CONFORME_FROM = Fraction("0.85")
_PARTIEL_FROM = Fraction("0.4")
_EXCELLENT_FROM = Fraction("0.95")


@dataclass(frozen=True)
class DerivedVerdict:
    score: int
    conforme: Conforme
    niveau: Niveau


def round_half_up(value: Fraction) -> int:
    """The nearest whole number, of two the higher. Python's round() would make 2 of 2.5."""
    return floor(value + Fraction(1, 2))


def met_ratio(points: Sequence[ControlPoint]) -> Fraction:
    """From 0 to 1. What is not applicable does not count, and where nothing is, nothing is
    lacking."""
    worths = [_WORTH[point.statut] for point in points if point.statut in _WORTH]
    return sum(worths, Fraction()) / len(worths) if worths else Fraction(1)


def derive_verdict(points: Sequence[ControlPoint], weight: int) -> DerivedVerdict:
    ratio = met_ratio(points)
    conforme = _conforme(ratio)
    return DerivedVerdict(
        clamp_score(round_half_up(ratio * weight), weight), conforme, _step_niveau(conforme, ratio)
    )


def clamp_score(score: int, weight: int) -> int:
    return max(0, min(score, weight))


def is_stricter(conforme: Conforme, than: Conforme) -> bool:
    return _FROM_STRICT.index(conforme) < _FROM_STRICT.index(than)


def minutages_of(points: Sequence[ControlPoint]) -> tuple[str, ...]:
    """Of every citation, each once, in their order."""
    return tuple(
        dict.fromkeys(citation.minutage for point in points for citation in point.citations)
    )


def _conforme(ratio: Fraction) -> Conforme:
    if ratio >= _CONFORME_FROM:
        return Conforme.CONFORME
    return Conforme.PARTIEL if ratio >= _PARTIEL_FROM else Conforme.NON_CONFORME


def _step_niveau(conforme: Conforme, ratio: Fraction) -> Niveau:
    if conforme is Conforme.CONFORME:
        return Niveau.EXCELLENT if ratio >= _EXCELLENT_FROM else Niveau.BON
    return Niveau.ACCEPTABLE if conforme is Conforme.PARTIEL else Niveau.INSUFFISANT


_LEAST = (
    (Fraction(90), Niveau.EXCELLENT),
    (Fraction(75), Niveau.BON),
    (Fraction(60), Niveau.ACCEPTABLE),
)
_COMPLIANT = frozenset(niveau for _, niveau in _LEAST)


@dataclass(frozen=True)
class StepScore:
    weight: int
    is_critical: bool
    score: int
    conforme: Conforme
    traite: bool


@dataclass(frozen=True)
class Compliance:
    """`score_percentage` is rounded to be read: the niveau is of the exact one, so 89.995 reads
    90.00 and is BON."""

    score_percentage: Decimal
    niveau: Niveau
    critical_passed: int
    critical_total: int
    earned: int
    total_weight: int
    successful_steps: int
    failed_steps: int

    @property
    def is_compliant(self) -> bool:
        """An INSUFFISANT audit is not, though no critical step rejects it."""
        return self.niveau in _COMPLIANT


def score_audit(steps: Sequence[StepScore]) -> Compliance:
    """A critical step passes only when CONFORME, and one that does not pass rejects the audit
    whatever its score."""
    total = sum(step.weight for step in steps)
    earned = sum(clamp_score(step.score, step.weight) for step in steps)
    percentage = Fraction(100 * earned, total) if total else Fraction(0)
    critical = [step.conforme is Conforme.CONFORME for step in steps if step.is_critical]
    treated = sum(step.traite for step in steps)
    return Compliance(
        score_percentage=Decimal(round_half_up(percentage * 100)).scaleb(-2),
        niveau=_audit_niveau(percentage) if all(critical) else Niveau.REJET,
        critical_passed=sum(critical),
        critical_total=len(critical),
        earned=earned,
        total_weight=total,
        successful_steps=treated,
        failed_steps=len(steps) - treated,
    )


def _audit_niveau(percentage: Fraction) -> Niveau:
    return next((niveau for least, niveau in _LEAST if percentage >= least), Niveau.INSUFFISANT)
