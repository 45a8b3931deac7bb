"""The control points that the model returned, set against those that were asked for."""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

from automation_pipeline.audits.domain.findings import ControlPoint, Statut, StepFinding
from automation_pipeline.audits.domain.meaning import turns_of_meaning
from automation_pipeline.audits.domain.normalised import normalised

NOT_DEALT_WITH = "Non traité par le modèle."

_ALIKE = 0.85
_FEWEST_WITHIN = 2
_NUMBERING = re.compile(
    r"\s*(?:[-*•]|(?:point\s+(?:de\s+contr[oô]le\s+)?)?\(?\d+(?:\.\d+)*\s*[.):–-])\s+", re.IGNORECASE
)

# What is not applicable leaves the ratio without any proof, so it is the mildest.
_FROM_STRICT = (Statut.ABSENT, Statut.PARTIEL, Statut.PRESENT, Statut.NON_APPLICABLE)


@dataclass(frozen=True)
class Reconciled:
    """`missing` of the configured points were not returned; `unknown` of the returned ones were dropped."""

    finding: StepFinding
    missing: int
    unknown: int


def reconcile(finding: StepFinding, configured: tuple[str, ...]) -> Reconciled:
    """Every configured point exactly once, in its order and with its text. Of several answers to one point the one in
    its own words stays, among equals the strictest, among those the first; the others are dropped."""
    found: dict[int, ControlPoint] = {}
    left: Sequence[ControlPoint] = finding.points
    for key in (str.strip, normalised, _unnumbered):
        if not left:
            break
        equal, left = _equal(configured, found, left, key)
        found |= equal
    found |= _alike({slot: text for slot, text in enumerate(configured) if slot not in found}, left)
    points = tuple(
        replace(found[slot], point=text) if slot in found else _missing(text) for slot, text in enumerate(configured)
    )
    return Reconciled(replace(finding, points=points), len(configured) - len(found), len(finding.points) - len(found))


def _missing(text: str) -> ControlPoint:
    return ControlPoint(point=text, statut=Statut.ABSENT, commentaire=NOT_DEALT_WITH)


def _unnumbered(text: str) -> str:
    return normalised(_NUMBERING.sub("", text, count=1) if _NUMBERING.match(text) else text)


def _strictness(point: ControlPoint) -> int:
    return _FROM_STRICT.index(point.statut)


def _equal(
    configured: tuple[str, ...],
    found: Mapping[int, ControlPoint],
    left: Sequence[ControlPoint],
    key: Callable[[str], str],
) -> tuple[dict[int, ControlPoint], Sequence[ControlPoint]]:
    """What matches by this key, and what has yet to be matched. Duplicates are in neither."""
    slots: dict[str, list[int]] = defaultdict(list)
    for slot, text in enumerate(configured):
        slots[key(text)].append(slot)
    answers: dict[str, list[ControlPoint]] = defaultdict(list)
    rest: list[ControlPoint] = []
    for point in left:
        name = key(point.point)
        (answers[name] if name and name in slots else rest).append(point)
    equal: dict[int, ControlPoint] = {}
    for name, points in answers.items():
        free = [slot for slot in slots[name] if slot not in found]
        equal.update(zip(free, _strictest(points, len(free)), strict=False))
    return equal, rest


def _strictest(points: Sequence[ControlPoint], count: int) -> list[ControlPoint]:
    """So many of them, in the order they came in."""
    chosen = sorted(range(len(points)), key=lambda at: _strictness(points[at]))[:count]
    return [points[at] for at in sorted(chosen)]


def _alike(slots: Mapping[int, str], left: Sequence[ControlPoint]) -> dict[int, ControlPoint]:
    """The best pairs first."""
    asked = {slot: _unnumbered(text) for slot, text in slots.items()}
    answered = [_unnumbered(point.point) for point in left]
    likeness = {(slot, at): _likeness(one, two) for slot, one in asked.items() for at, two in enumerate(answered)}
    clear = [pair for pair, value in likeness.items() if value > 0]
    clear.sort(key=lambda pair: (-likeness[pair], _strictness(left[pair[1]]), pair))
    alike: dict[int, ControlPoint] = {}
    used: set[int] = set()
    for slot, at in clear:
        if slot not in alike and at not in used:
            alike[slot] = left[at]
            used.add(at)
    return alike


def _likeness(one: str, two: str) -> float:
    """From 0, also for what is not clearly alike, to 1."""
    inner, outer = sorted((one, two), key=len)
    if not inner or turns_of_meaning(one) != turns_of_meaning(two):
        return 0.0
    if f" {inner} " in f" {outer} " and len(inner.split()) >= max(_FEWEST_WITHIN, len(outer.split()) / 2):
        return 2 * len(inner) / (len(inner) + len(outer))
    # By itself difflib ignores the frequent letters of texts from 200 characters on, which are all of them.
    matcher = SequenceMatcher(None, one, two, autojunk=False)
    if min(matcher.real_quick_ratio(), matcher.quick_ratio()) < _ALIKE:
        return 0.0
    ratio = matcher.ratio()
    return ratio if ratio >= _ALIKE else 0.0
