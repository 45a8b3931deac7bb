"""Evidence gating: a control point is met only where a citation proves it that was really said."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

from automation_pipeline.audits.models.audits import GatingOptions
from automation_pipeline.audits.models.findings import (
    UNKNOWN,
    Citation,
    ControlPoint,
    GatedFinding,
    GatingStats,
    Statut,
    StepFinding,
)
from automation_pipeline.audits.models.timelines import Timeline, TimelineChunk
from automation_pipeline.audits.rules.scoring import derive_verdict, is_stricter, minutages_of
from automation_pipeline.audits.rules.search import normalise

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
