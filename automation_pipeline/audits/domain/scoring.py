"""The score and the verdict of a whole audit."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from automation_pipeline.audits.domain.derivation import clamped, half_up
from automation_pipeline.audits.domain.findings import Conforme, Niveau

_LEAST = ((Fraction(90), Niveau.EXCELLENT), (Fraction(75), Niveau.BON), (Fraction(60), Niveau.ACCEPTABLE))
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
    """`score_percentage` is rounded to be read: the niveau is of the exact one, so 89.995 reads 90.00 and is BON."""

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
    """A critical step passes only when CONFORME, and one that does not pass rejects the audit whatever its score."""
    total = sum(step.weight for step in steps)
    earned = sum(clamped(step.score, step.weight) for step in steps)
    percentage = Fraction(100 * earned, total) if total else Fraction(0)
    critical = [step.conforme is Conforme.CONFORME for step in steps if step.is_critical]
    treated = sum(step.traite for step in steps)
    return Compliance(
        score_percentage=Decimal(half_up(percentage * 100)).scaleb(-2),
        niveau=_niveau(percentage) if all(critical) else Niveau.REJET,
        critical_passed=sum(critical),
        critical_total=len(critical),
        earned=earned,
        total_weight=total,
        successful_steps=treated,
        failed_steps=len(steps) - treated,
    )


def _niveau(percentage: Fraction) -> Niveau:
    return next((niveau for least, niveau in _LEAST if percentage >= least), Niveau.INSUFFISANT)
