"""Verdicts: evidence gating, the verdict of a step, the score and the result of an audit."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from math import floor

from pydantic.alias_generators import to_camel

from automation_pipeline.audits.models.audits import (
    UNKNOWN,
    AuditRecord,
    AuditSummary,
    Citation,
    Conforme,
    ControlPoint,
    GatedFinding,
    GatingOptions,
    GatingStats,
    MissingStep,
    Niveau,
    Statut,
    StepFinding,
    StoredStep,
    Timeline,
    TimelineChunk,
    TranscriptCoverage,
)
from automation_pipeline.audits.models.chat import Usage
from automation_pipeline.audits.rules.tools import normalise
from automation_pipeline.core.clock import iso

_WORTH = {Statut.PRESENT: Fraction(1), Statut.PARTIEL: Fraction(1, 2), Statut.ABSENT: Fraction(0)}
_STRICTEST_FIRST = (Conforme.NON_CONFORME, Conforme.PARTIEL, Conforme.CONFORME)
# The verdict and the grade of a step, by the least ratio of points met.
_STEP_VERDICTS = (
    (Fraction("0.95"), Conforme.CONFORME, Niveau.EXCELLENT),
    (Fraction("0.85"), Conforme.CONFORME, Niveau.BON),
    (Fraction("0.4"), Conforme.PARTIEL, Niveau.ACCEPTABLE),
    (Fraction(0), Conforme.NON_CONFORME, Niveau.INSUFFISANT),
)
_AUDIT_GRADES = (
    (Fraction(90), Niveau.EXCELLENT),
    (Fraction(75), Niveau.BON),
    (Fraction(60), Niveau.ACCEPTABLE),
)
UNKNOWN_SPEAKER = "unknown"
UNPROVEN = "[Auto-check] Aucune citation vérifiable : point compté comme ABSENT."
Document = Mapping[str, object]
_NO_VERDICT: Document = {
    "traite": False,
    "conforme": None,
    "score": None,
    "niveau_conformite": None,
    "commentaire_global": "",
    "mots_cles_trouves": [],
    "minutages": [],
    "erreurs_transcription_tolerees": 0,
}


@dataclass(frozen=True)
class DerivedVerdict:
    score: int
    conforme: Conforme
    niveau: Niveau


def round_half_up(value: Fraction) -> int:
    """Round to the nearest whole number, and halves up. Python's round() turns 2.5 into 2."""
    return floor(value + Fraction(1, 2))


def met_ratio(points: Sequence[ControlPoint]) -> Fraction:
    """The ratio of the applicable points that are met, from 0 to 1. It is 1 if none is applicable."""
    worths = [_WORTH[point.statut] for point in points if point.statut in _WORTH]
    return sum(worths, Fraction()) / len(worths) if worths else Fraction(1)


def derive_verdict(points: Sequence[ControlPoint], weight: int) -> DerivedVerdict:
    ratio = met_ratio(points)
    score = clamp_score(round_half_up(ratio * weight), weight)
    for least, conforme, niveau in _STEP_VERDICTS:
        if ratio >= least:
            return DerivedVerdict(score, conforme, niveau)
    raise AssertionError(ratio)


def clamp_score(score: int, weight: int) -> int:
    return max(0, min(score, weight))


def minutages_of(points: Sequence[ControlPoint]) -> tuple[str, ...]:
    """The minutages of the citations in their order, each once."""
    return tuple(
        dict.fromkeys(citation.minutage for point in points for citation in point.citations)
    )


@dataclass(frozen=True)
class Compliance:
    """`score_percentage` is rounded. The niveau comes from the exact percentage: 89.995 is shown as
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
        """False also for an INSUFFISANT audit that no critical step rejects."""
        return any(self.niveau is niveau for _, niveau in _AUDIT_GRADES)


def score_audit(steps: Sequence[StoredStep]) -> Compliance:
    """A critical step passes only if it is CONFORME. One that does not pass rejects the audit, whatever its
    score."""
    total = sum(step.weight for step in steps)
    earned = sum(clamp_score(step.finding.score, step.weight) for step in steps)
    percentage = Fraction(100 * earned, total) if total else Fraction(0)
    grades = (niveau for least, niveau in _AUDIT_GRADES if percentage >= least)
    critical = [step.finding.conforme is Conforme.CONFORME for step in steps if step.is_critical]
    treated = sum(step.finding.traite for step in steps)
    return Compliance(
        score_percentage=Decimal(round_half_up(percentage * 100)).scaleb(-2),
        niveau=next(grades, Niveau.INSUFFISANT) if all(critical) else Niveau.REJET,
        critical_passed=sum(critical),
        critical_total=len(critical),
        earned=earned,
        total_weight=total,
        successful_steps=treated,
        failed_steps=len(steps) - treated,
    )


class _SpokenChunk:
    """The words of a chunk, without the labels of the speakers."""

    def __init__(self, chunk: TimelineChunk) -> None:
        names = sorted({*chunk.speakers, UNKNOWN_SPEAKER} - {""}, key=len, reverse=True)
        self._before_turns = re.compile(
            rf"^[^\S\n]*(?:{_one_of(names)})[^\S\n]*:", re.IGNORECASE | re.MULTILINE
        )
        self._anywhere = re.compile(rf"\b(?:{_one_of([*filter(None, map(normalise, names))])})\b")
        self._words = self._turns(chunk.full_text)

    def contains(self, quotation: str, shortest: int) -> bool:
        """Compare without the labels at the start of lines and, because a model may join lines, without labels
        anywhere. The first comparison matters when a speaker says a word that is also a label."""
        quotes = (
            self._turns(quotation),
            normalise(self._anywhere.sub("", normalise(quotation))),
        )
        return any(len(quote) >= shortest and quote in self._words for quote in quotes)

    def _turns(self, text: str) -> str:
        return normalise(self._before_turns.sub("", text))


def _one_of(texts: Collection[str]) -> str:
    return "|".join(map(re.escape, texts))


# Cached, because the steps of an audit quote the same chunks.
_spoken_chunk = lru_cache(maxsize=2_000)(_SpokenChunk)


def is_quoted(quotation: str, indexes: tuple[int, int], timeline: Timeline, shortest: int) -> bool:
    """Whether the chunk at the `indexes` (recording, chunk) contains the quotation word for word. A quotation
    of fewer than `shortest` characters proves nothing."""
    chunk = timeline.chunk(*indexes)
    return chunk is not None and _spoken_chunk(chunk).contains(quotation, shortest)


def gate(
    finding: StepFinding, weight: int, timeline: Timeline, options: GatingOptions
) -> GatedFinding:
    """Reduce the finding to what the timeline proves. Score, conforme and statuts can only get lower, and
    gating the result again changes nothing. If gating is disabled, citations only get the facts of
    their recordings."""
    if not options.enabled:
        return GatedFinding(
            replace(
                finding,
                points=tuple(
                    replace(point, citations=_with_recordings(point.citations, timeline))
                    for point in finding.points
                ),
            ),
            GatingStats(finding.citations),
        )
    points = tuple(_gate_point(point, timeline, options) for point in finding.points)
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
    strictness = _STRICTEST_FIRST.index
    if strictness(proven.conforme) < strictness(finding.conforme):
        finding = replace(finding, conforme=proven.conforme, niveau_conformite=proven.niveau)
    if proven.score < min(finding.score, weight):
        note = f"[Auto-check] Score ramené de {finding.score} à {proven.score} : les points prouvés ne valent pas plus."
        comment = _with_note(finding.commentaire_global, note)
        finding = replace(finding, score=proven.score, commentaire_global=comment)
    return finding


def _gate_point(point: ControlPoint, timeline: Timeline, options: GatingOptions) -> ControlPoint:
    if point.statut in {Statut.ABSENT, Statut.NON_APPLICABLE}:
        return replace(point, citations=(), minutages=())
    # Without a minimum, an empty quotation would prove anything.
    shortest = (
        options.min_quote_characters
        if options.min_quote_characters > 0
        else GatingOptions.min_quote_characters
    )
    valid = [
        cited
        for cited in point.citations
        if is_quoted(cited.texte, (cited.recording_index, cited.chunk_index), timeline, shortest)
    ]
    if not valid:
        return replace(
            point,
            statut=Statut.ABSENT,
            commentaire=_with_note(point.commentaire, UNPROVEN),
            citations=(),
            minutages=(),
        )
    kept = replace(point, citations=_with_recordings(valid, timeline))
    return replace(kept, minutages=minutages_of((kept,)))


def _with_recordings(citations: Sequence[Citation], timeline: Timeline) -> tuple[Citation, ...]:
    """Replace what the model says about the recordings, which it may have invented."""
    return tuple(
        replace(
            citation,
            recording_date=(recording and recording.date) or UNKNOWN,
            recording_time=(recording and recording.time) or UNKNOWN,
            recording_url=(recording and recording.url) or UNKNOWN,
            call_id=recording.call_id if recording else None,
        )
        for citation in citations
        for recording in [timeline.recording(citation.recording_index)]
    )


def _with_note(comment: str, note: str) -> str:
    return f"{comment} {note}" if comment else note


def tokens_of(steps: Sequence[StoredStep | MissingStep]) -> int:
    """The usage of a step includes all its analyses and reruns, so the sum is the cost of the audit."""
    return sum(step.usage.total_tokens for step in steps)


def summary_columns(
    found: AuditRecord, steps: Sequence[StoredStep], compliance: Compliance, now: datetime
) -> dict[str, object]:
    """The columns of a completed audit. They depend on the steps alone, also after a rerun or a review."""
    tokens, completed_at = tokens_of(steps), found.completed_at or now
    stats = [step.stats for step in steps]
    return {
        "overall_score": compliance.score_percentage,
        "score_percentage": compliance.score_percentage,
        "niveau": compliance.niveau,
        "is_compliant": compliance.is_compliant,
        "critical_passed": compliance.critical_passed,
        "critical_total": compliance.critical_total,
        "successful_steps": compliance.successful_steps,
        "failed_steps": compliance.failed_steps,
        "total_tokens": tokens,
        "completed_at": completed_at,
        "duration_ms": found.duration_ms(completed_at),
        "gating": {
            "total_citations": sum(step.total_citations for step in stats),
            "removed_citations": sum(step.removed_citations for step in stats),
            "downgraded_control_points": sum(step.downgraded_control_points for step in stats),
            "steps_score_reduced": sum(step.step_score_reduced for step in stats),
            "steps_conforme_adjusted": sum(step.step_conforme_adjusted for step in stats),
        },
        "result_data": _result_document(found, compliance, tokens, completed_at),
    }


def _result_document(
    found: AuditRecord, compliance: Compliance, tokens: int, completed_at: datetime
) -> Document:
    audit, duration_ms = found.summary, found.duration_ms(completed_at)
    approach = {"use_rlm": found.use_rlm, "transcript_mode": found.transcript_mode}
    verdict = {
        "score": float(compliance.score_percentage),
        "niveau": compliance.niveau,
        "points_critiques": f"{compliance.critical_passed}/{compliance.critical_total}",
        "poids_obtenu": compliance.earned,
        "poids_total": compliance.total_weight,
    }
    return {
        "audit_db_id": str(audit.audit_id),
        "audit_tracking_id": audit.tracking_id,
        "audit": {
            "config": {
                "id": str(audit.audit_config_id),
                "name": found.config.name,
                "description": found.config.description,
            },
            "fiche": {
                "fiche_id": audit.fiche_id,
                "prospect_name": found.prospect_name,
                "groupe": found.groupe,
            },
            "results": {"compliance": verdict, "approach": approach},
            "compliance": verdict,
            "approach": approach,
        },
        "statistics": {
            "recordings_count": found.recordings,
            "coverage": found.coverage,
            "transcriptions_count": found.recordings,
            "timeline_chunks": found.chunks,
            "successful_steps": compliance.successful_steps,
            "failed_steps": compliance.failed_steps,
            "total_time_seconds": round(duration_ms / 1000, 3),
            "total_tokens": tokens,
        },
        "metadata": {
            "started_at": iso(found.started_at),
            "completed_at": iso(completed_at),
            "duration_ms": duration_ms,
            "approach": approach,
        },
    }


def incomplete_columns(
    found: AuditRecord,
    audit: AuditSummary,
    steps: Sequence[StoredStep | MissingStep],
    coverage: TranscriptCoverage,
    now: datetime,
) -> dict[str, object]:
    """The columns of an incomplete `audit`. It has no grade, because a missing step or transcript
    is no evidence about the calls."""
    missing = [step for step in steps if isinstance(step, MissingStep)]
    counts = {
        "successful_steps": len(steps) - len(missing),
        "failed_steps": len(missing),
        "total_tokens": tokens_of(steps),
    }
    return {
        "status": audit.status,
        "error_message": audit.error,
        "coverage": coverage.document,
        **counts,
        "completed_at": now,
        "duration_ms": found.duration_ms(now),
        "result_data": {
            "status": audit.status,
            "audit_db_id": str(audit.audit_id),
            "audit_tracking_id": audit.tracking_id,
            "reason": audit.error,
            "coverage": {
                "recordings": coverage.document,
                "steps": {
                    "total": audit.steps,
                    "judged": counts["successful_steps"],
                    "not_judged": [
                        {"position": step.position, "error": step.error} for step in missing
                    ],
                },
            },
            "statistics": counts,
            "metadata": {"started_at": iso(found.started_at), "ended_at": iso(now)},
        },
    }


def running_document(found: AuditRecord) -> Document:
    schedule_id, run_id = found.automation_schedule_id, found.automation_run_id
    known = {
        "audit_id": found.summary.tracking_id,
        "trigger_source": found.trigger_source,
        "automation_schedule_id": None if schedule_id is None else str(schedule_id),
        "automation_run_id": None if run_id is None else str(run_id),
    }
    return {
        "status": "running",
        "started_at": iso(found.started_at),
        "approach": {"use_rlm": found.use_rlm, "transcript_mode": found.transcript_mode},
        **{name: value for name, value in known.items() if value is not None},
    }


def verdict_columns(finding: StepFinding | None) -> Document:
    """The verdict of a step; empty values for a step that could not be judged."""
    if finding is None:
        return _NO_VERDICT
    return {
        "traite": finding.traite,
        "conforme": finding.conforme.value,
        "score": finding.score,
        "niveau_conformite": finding.niveau_conformite.value,
        "commentaire_global": finding.commentaire_global,
        "mots_cles_trouves": list(finding.mots_cles_trouves),
        "minutages": list(finding.minutages),
        "erreurs_transcription_tolerees": finding.erreurs_transcription_tolerees,
    }


def usage_document(usage: Usage) -> Document:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
    }


def step_document(step: StoredStep | MissingStep, history: Document) -> dict[str, object]:
    """A stored step as it is in the result document. `error` says why it could not be judged."""
    finding = step.finding if isinstance(step, StoredStep) else None
    return {
        **verdict_columns(finding),
        "error": step.error if isinstance(step, MissingStep) else None,
        "points_controle": [point_document(point) for point in finding.points] if finding else [],
        "step_metadata": {
            "position": step.position,
            "name": step.name,
            "severity": step.severity,
            "is_critical": step.is_critical,
            "weight": step.weight,
        },
        "usage": usage_document(step.usage),
        **history,
    }


def step_summary(step: StoredStep | MissingStep) -> dict[str, object]:
    finding = step.finding if isinstance(step, StoredStep) else None
    row = {
        "step_position": step.position,
        "step_name": step.name,
        "severity_level": step.severity,
        "is_critical": step.is_critical,
        "weight": step.weight,
        **verdict_columns(finding),
        "total_citations": finding.citations if finding else 0,
        "total_tokens": step.usage.total_tokens,
        "error": step.error if isinstance(step, MissingStep) else None,
    }
    return {to_camel(name): value for name, value in row.items()}


def point_document(point: ControlPoint) -> Document:
    return {
        **asdict(point),
        "statut": point.statut.value,
        "minutages": list(point.minutages),
        "citations": [asdict(citation) for citation in point.citations],
    }


def nothing_to_judge(fiche_id: str, coverage: TranscriptCoverage) -> str:
    """Why the timeline is empty."""
    recordings, transcribed = coverage.recordings, len(coverage.transcribed)
    if recordings == 0:
        return f"No recordings found for fiche {fiche_id} (cannot run audit)"
    if transcribed == 0:
        return f"No transcriptions available for fiche {fiche_id} ({transcribed}/{recordings})"
    return f"No usable transcribed recordings available for fiche {fiche_id} (timeline empty)"


def transcripts_missing(fiche_id: str, coverage: TranscriptCoverage, cause: str | None) -> str:
    sentence = f"Audit incomplete: {coverage.sentence}"
    if not coverage.transcribed:
        sentence += f". {nothing_to_judge(fiche_id, coverage)}"
    return f"{sentence}: {cause}" if cause else sentence


def steps_sentence(judged: int, steps: int) -> str:
    return f"{judged} of {steps} steps judged"
