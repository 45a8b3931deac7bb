"""Evidence gating: a control point is met only where a quotation proves it that was really said."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from automation_pipeline.audits.domain.derivation import derived, is_stricter, minutages_of
from automation_pipeline.audits.domain.findings import UNKNOWN, Citation, ControlPoint, Statut, StepFinding
from automation_pipeline.audits.domain.knobs import GatingRules
from automation_pipeline.audits.domain.speech import Speech, speech_of
from automation_pipeline.audits.domain.timeline import Timeline

UNPROVEN = "[Auto-check] Aucune citation vérifiable : point compté comme ABSENT."


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
class Gated:
    finding: StepFinding
    stats: GatingStats


def gate(finding: StepFinding, weight: int, timeline: Timeline, rules: GatingRules) -> Gated:
    """The finding as far as the timeline bears it out. Its score, its conforme and every statut are at most what they
    were, and gating it again changes nothing. When switched off, citations still get to know their recording."""
    if not rules.enabled:
        known = tuple(replace(point, citations=_enriched(point.citations, timeline)) for point in finding.points)
        return Gated(replace(finding, points=known), GatingStats(finding.citations))
    speech = speech_of(timeline)
    points = tuple(_gated_point(point, speech, rules) for point in finding.points)
    lowered = _lowered(replace(finding, points=points, minutages=minutages_of(points)), weight)
    stats = GatingStats(
        total_citations=finding.citations,
        removed_citations=finding.citations - lowered.citations,
        downgraded_control_points=sum(
            before.statut is not after.statut for before, after in zip(finding.points, points, strict=True)
        ),
        step_score_reduced=lowered.score < finding.score,
        step_conforme_adjusted=lowered.conforme is not finding.conforme,
    )
    return Gated(lowered, stats)


def _lowered(finding: StepFinding, weight: int) -> StepFinding:
    proven = derived(finding.points, weight)
    if is_stricter(proven.conforme, than=finding.conforme):
        finding = replace(finding, conforme=proven.conforme, niveau_conformite=proven.niveau)
    if proven.score < min(finding.score, weight):
        note = f"[Auto-check] Score ramené de {finding.score} à {proven.score} : les points prouvés ne valent pas plus."
        comment = _with_note(finding.commentaire_global, note)
        finding = replace(finding, score=proven.score, commentaire_global=comment)
    return finding


def _gated_point(point: ControlPoint, speech: Speech, rules: GatingRules) -> ControlPoint:
    if point.statut in {Statut.ABSENT, Statut.NON_APPLICABLE}:
        return replace(point, citations=(), minutages=())
    valid = tuple(citation for citation in point.citations if _is_said(citation, speech, rules))
    if not valid:
        comment = _with_note(point.commentaire, UNPROVEN)
        return replace(point, statut=Statut.ABSENT, commentaire=comment, citations=(), minutages=())
    kept = replace(point, citations=_enriched(valid, speech.timeline))
    return replace(kept, minutages=minutages_of((kept,)))


def _is_said(citation: Citation, speech: Speech, rules: GatingRules) -> bool:
    # No minimum at all would let an empty quotation prove anything.
    shortest = rules.min_quote_characters if rules.min_quote_characters > 0 else GatingRules.min_quote_characters
    return speech.holds(citation.texte, (citation.recording_index, citation.chunk_index), shortest)


def _enriched(citations: Sequence[Citation], timeline: Timeline) -> tuple[Citation, ...]:
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
