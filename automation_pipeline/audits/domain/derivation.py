"""What the control points of a step come to: the share of them that is met, and the score and verdicts that follow.
Gating (`evidence`) and changes by people (`review`) share it."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor

from automation_pipeline.audits.domain.findings import Conforme, ControlPoint, Niveau, Statut

_WORTH = {Statut.PRESENT: Fraction(1), Statut.PARTIEL: Fraction(1, 2), Statut.ABSENT: Fraction(0)}
_FROM_STRICT = (Conforme.NON_CONFORME, Conforme.PARTIEL, Conforme.CONFORME)
_CONFORME_FROM = Fraction("0.85")
_PARTIEL_FROM = Fraction("0.4")
_EXCELLENT_FROM = Fraction("0.95")


@dataclass(frozen=True)
class Derived:
    score: int
    conforme: Conforme
    niveau: Niveau


def half_up(value: Fraction) -> int:
    """The nearest whole number, of two the higher. Python's round() would make 2 of 2.5."""
    return floor(value + Fraction(1, 2))


def ratio_of(points: Sequence[ControlPoint]) -> Fraction:
    """From 0 to 1. What is not applicable does not count, and where nothing is, nothing is lacking."""
    worths = [_WORTH[point.statut] for point in points if point.statut in _WORTH]
    return sum(worths, Fraction()) / len(worths) if worths else Fraction(1)


def derived(points: Sequence[ControlPoint], weight: int) -> Derived:
    ratio = ratio_of(points)
    conforme = _conforme(ratio)
    return Derived(clamped(half_up(ratio * weight), weight), conforme, _niveau(conforme, ratio))


def clamped(score: int, weight: int) -> int:
    return max(0, min(score, weight))


def is_stricter(conforme: Conforme, than: Conforme) -> bool:
    return _FROM_STRICT.index(conforme) < _FROM_STRICT.index(than)


def minutages_of(points: Sequence[ControlPoint]) -> tuple[str, ...]:
    """Of every citation, each once, in their order."""
    return tuple(dict.fromkeys(citation.minutage for point in points for citation in point.citations))


def _conforme(ratio: Fraction) -> Conforme:
    if ratio >= _CONFORME_FROM:
        return Conforme.CONFORME
    return Conforme.PARTIEL if ratio >= _PARTIEL_FROM else Conforme.NON_CONFORME


def _niveau(conforme: Conforme, ratio: Fraction) -> Niveau:
    if conforme is Conforme.CONFORME:
        return Niveau.EXCELLENT if ratio >= _EXCELLENT_FROM else Niveau.BON
    return Niveau.ACCEPTABLE if conforme is Conforme.PARTIEL else Niveau.INSUFFISANT
