"""Verdicts: evidence gating, the verdict of a step, and the score of an audit."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from functools import cached_property, lru_cache
from math import floor

from automation_pipeline.audits.models.audits import GatingOptions, Timeline, TimelineChunk
from automation_pipeline.audits.models.findings import (
    UNKNOWN,
    Citation,
    Conforme,
    ControlPoint,
    GatedFinding,
    GatingStats,
    Niveau,
    Statut,
    StepFinding,
)
from automation_pipeline.audits.rules.tools import normalise

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


UNKNOWN_SPEAKER = "unknown"


class SpeakerLabels:
    """The speakers of a chunk, as they stand before what each of them says."""

    def __init__(self, speakers: Collection[str]) -> None:
        names = sorted({*speakers, UNKNOWN_SPEAKER} - {""}, key=len, reverse=True)
        message = [word for word in map(normalise, names) if word]
        self._before_turns = re.compile(
            rf"^[^\S\n]*(?:{_one_of(names)})[^\S\n]*:", re.IGNORECASE | re.MULTILINE
        )
        self._anywhere = re.compile(rf"\b(?:{_one_of(message)})\b")

    def off_turns(self, text: str) -> str:
        """The words of the turns, each of which has a line of its own."""
        return normalise(self._before_turns.sub("", text))

    def off(self, text: str) -> str:
        """The words without any label, for turns that somebody has put into one line."""
        return normalise(self._anywhere.sub("", normalise(text)))


@dataclass(frozen=True)
class _SpokenChunk:
    chunk: TimelineChunk

    @cached_property
    def labels(self) -> SpeakerLabels:
        return SpeakerLabels(self.chunk.speakers)

    @cached_property
    def words(self) -> str:
        return self.labels.off_turns(self.chunk.full_text)


@dataclass(frozen=True)
class SpokenTimeline:
    """The chunks of a timeline, each made into words once, however often it is quoted."""

    timeline: Timeline
    _known: dict[tuple[int, int], _SpokenChunk | None] = field(
        default_factory=dict[tuple[int, int], "_SpokenChunk | None"],
        init=False,
        repr=False,
        compare=False,
    )

    def holds(self, quotation: str, place: tuple[int, int], shortest: int) -> bool:
        """Whether it was said word for word in the chunk (recording, chunk), in at least so many
        characters. Somebody may have said a word that is a label too, so the quotation counts with
        such words and without."""
        said = self._said(place)
        if said is None:
            return False
        quotes = said.labels.off_turns(quotation), said.labels.off(quotation)
        return any(len(quote) >= shortest and quote in said.words for quote in quotes)

    def _said(self, place: tuple[int, int]) -> _SpokenChunk | None:
        if place not in self._known:
            chunk = self.timeline.chunk(*place)
            self._known[place] = _SpokenChunk(chunk) if chunk else None
        return self._known[place]


# Of the audits under way: the steps of one are proven by the same calls.
@lru_cache(maxsize=32)
def spoken_timeline(timeline: Timeline) -> SpokenTimeline:
    return SpokenTimeline(timeline)


def _one_of(texts: Collection[str]) -> str:
    return "|".join(map(re.escape, texts))


UNPROVEN = "[Auto-check] Aucune citation vérifiable : point compté comme ABSENT."


def gate(
    finding: StepFinding, weight: int, timeline: Timeline, rules: GatingOptions
) -> GatedFinding:
    """The finding as far as the timeline bears it out. Its score, its conforme and every statut are
    at most what they were, and gating it again changes nothing. When switched off, citations still
    get to know their recording."""
    if not rules.enabled:
        known = tuple(
            replace(point, citations=_with_recordings(point.citations, timeline))
            for point in finding.points
        )
        return GatedFinding(replace(finding, points=known), GatingStats(finding.citations))
    speech = spoken_timeline(timeline)
    points = tuple(_gate_point(point, speech, rules) for point in finding.points)
    lowered = _lower_to_proof(
        replace(finding, points=points, minutages=minutages_of(points)), weight
    )
    stats = GatingStats(
        total_citations=finding.citations,
        removed_citations=finding.citations - lowered.citations,
        downgraded_control_points=sum(
            before.statut is not after.statut
            for before, after in zip(finding.points, points, strict=True)
        ),
        step_score_reduced=lowered.score < finding.score,
        step_conforme_adjusted=lowered.conforme is not finding.conforme,
    )
    return GatedFinding(lowered, stats)


def _lower_to_proof(finding: StepFinding, weight: int) -> StepFinding:
    proven = derive_verdict(finding.points, weight)
    if is_stricter(proven.conforme, than=finding.conforme):
        finding = replace(finding, conforme=proven.conforme, niveau_conformite=proven.niveau)
    if proven.score < min(finding.score, weight):
        note = f"[Auto-check] Score ramené de {finding.score} à {proven.score} : les points prouvés ne valent pas plus."
        comment = _with_note(finding.commentaire_global, note)
        finding = replace(finding, score=proven.score, commentaire_global=comment)
    return finding


def _gate_point(point: ControlPoint, speech: SpokenTimeline, rules: GatingOptions) -> ControlPoint:
    if point.statut in {Statut.ABSENT, Statut.NON_APPLICABLE}:
        return replace(point, citations=(), minutages=())
    valid = tuple(citation for citation in point.citations if _is_said(citation, speech, rules))
    if not valid:
        comment = _with_note(point.commentaire, UNPROVEN)
        return replace(point, statut=Statut.ABSENT, commentaire=comment, citations=(), minutages=())
    kept = replace(point, citations=_with_recordings(valid, speech.timeline))
    return replace(kept, minutages=minutages_of((kept,)))


def _is_said(citation: Citation, speech: SpokenTimeline, rules: GatingOptions) -> bool:
    # No minimum at all would let an empty quotation prove anything.
    shortest = (
        rules.min_quote_characters
        if rules.min_quote_characters > 0
        else GatingOptions.min_quote_characters
    )
    return speech.holds(citation.texte, (citation.recording_index, citation.chunk_index), shortest)


def _with_recordings(citations: Sequence[Citation], timeline: Timeline) -> tuple[Citation, ...]:
    return tuple(_with_recording(citation, timeline) for citation in citations)


def _with_recording(citation: Citation, timeline: Timeline) -> Citation:
    """What the model said of the recording is never kept: it may be invented."""
    recording = timeline.recording(citation.recording_index)
    return replace(
        citation,
        recording_date=(recording and recording.date) or UNKNOWN,
        recording_time=(recording and recording.time) or UNKNOWN,
        recording_url=(recording and recording.url) or UNKNOWN,
        call_id=recording.call_id if recording else None,
    )


def _with_note(comment: str, note: str) -> str:
    return f"{comment} {note}" if comment else note
