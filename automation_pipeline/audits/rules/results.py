"""The result of an audit, computed from its stored steps: columns, documents, and the sentences of
failures."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from pydantic.alias_generators import to_camel

from automation_pipeline.audits.models.audits import (
    AuditSummary,
    TranscriptCoverage,
    steps_sentence,
)
from automation_pipeline.audits.models.configs import AuditConfig
from automation_pipeline.audits.models.findings import (
    AuditGating,
    ControlPoint,
    MissingStep,
    StoredStep,
)
from automation_pipeline.audits.rules.reviews import StepHistory
from automation_pipeline.audits.rules.verdicts import Compliance, StepScore, score_audit
from automation_pipeline.core.clock import iso

Document = Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class ResultContext:
    """What the result document says of an audit besides its steps."""

    audit_id: int
    tracking_id: str
    config_id: int
    config: AuditConfig
    fiche_id: str
    prospect_name: str
    groupe: str | None
    use_rlm: bool
    transcript_mode: str
    started_at: datetime
    completed_at: datetime
    recordings: int
    chunks: int
    coverage: Document | None

    @property
    def duration_ms(self) -> int:
        return round(1000 * (self.completed_at - self.started_at).total_seconds())

    @property
    def approach(self) -> Document:
        return {"use_rlm": self.use_rlm, "transcript_mode": self.transcript_mode}


def compliance_of(steps: Sequence[StoredStep]) -> Compliance:
    return score_audit([
        StepScore(step.weight, step.is_critical, step.finding.score, step.finding.conforme, step.finding.traite)
        for step in steps
    ])  # fmt: skip


def tokens_of(steps: Sequence[StoredStep | MissingStep]) -> int:
    """A step's usage is of all its analyses, reruns too, so the sum is what the audit has cost."""
    return sum(step.usage.total_tokens for step in steps)


def summary_columns(frame: ResultContext, steps: Sequence[StoredStep]) -> dict[str, object]:
    """The same after a first run, a rerun and a review: nothing of it is remembered apart from the
    steps."""
    compliance, tokens = compliance_of(steps), tokens_of(steps)
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
        "completed_at": frame.completed_at,
        "duration_ms": frame.duration_ms,
        "gating": asdict(AuditGating.of([step.stats for step in steps])),
        "result_data": _result_document(frame, compliance, tokens),
    }


def incomplete_columns(
    audit: AuditSummary,
    steps: Sequence[StoredStep | MissingStep],
    coverage: Document,
    started_at: datetime,
    now: datetime,
) -> dict[str, object]:
    """No grade, no score and no compliance: what is missing says nothing about the calls."""
    missing = [step for step in steps if isinstance(step, MissingStep)]
    judged, tokens = len(steps) - len(missing), tokens_of(steps)
    return {
        "status": audit.status,
        "error_message": audit.error,
        "coverage": coverage,
        "successful_steps": judged,
        "failed_steps": len(missing),
        "total_tokens": tokens,
        "result_data": {
            "status": audit.status,
            "audit_db_id": str(audit.audit_id),
            "audit_tracking_id": audit.tracking_id,
            "reason": audit.error,
            "coverage": {
                "recordings": coverage,
                "steps": {
                    "total": audit.steps,
                    "judged": judged,
                    "not_judged": [
                        {"position": step.position, "error": step.error} for step in missing
                    ],
                },
            },
            "statistics": {
                "successful_steps": judged,
                "failed_steps": len(missing),
                "total_tokens": tokens,
            },
            "metadata": {"started_at": iso(started_at), "ended_at": iso(now)},
        },
    }


def running_document(frame_of: Document, started_at: datetime, approach: Document) -> Document:
    """What is read while the audit runs. `frame_of` holds how it was triggered, as far as that is
    known."""
    known = {name: value for name, value in frame_of.items() if value is not None}
    return {"status": "running", "started_at": iso(started_at), "approach": approach, **known}


def _result_document(frame: ResultContext, compliance: Compliance, tokens: int) -> Document:
    verdict = {
        "score": float(compliance.score_percentage),
        "niveau": compliance.niveau,
        "points_critiques": f"{compliance.critical_passed}/{compliance.critical_total}",
        "poids_obtenu": compliance.earned,
        "poids_total": compliance.total_weight,
    }
    config = {
        "id": str(frame.config_id),
        "name": frame.config.name,
        "description": frame.config.description,
    }
    return {
        "audit_db_id": str(frame.audit_id),
        "audit_tracking_id": frame.tracking_id,
        "audit": {
            "config": config,
            "fiche": {
                "fiche_id": frame.fiche_id,
                "prospect_name": frame.prospect_name,
                "groupe": frame.groupe,
            },
            "results": {"compliance": verdict, "approach": frame.approach},
            "compliance": verdict,
            "approach": frame.approach,
        },
        "statistics": {
            "recordings_count": frame.recordings,
            "coverage": frame.coverage,
            "transcriptions_count": frame.recordings,
            "timeline_chunks": frame.chunks,
            "successful_steps": compliance.successful_steps,
            "failed_steps": compliance.failed_steps,
            "total_time_seconds": round(frame.duration_ms / 1000, 3),
            "total_tokens": tokens,
        },
        "metadata": {
            "started_at": iso(frame.started_at),
            "completed_at": iso(frame.completed_at),
            "duration_ms": frame.duration_ms,
            "approach": frame.approach,
        },
    }


# What an unjudged step lacks, as documents name it.
_NO_VERDICT: Document = {
    "traite": False,
    "conforme": None,
    "score": None,
    "niveau_conformite": None,
    "commentaire_global": "",
    "minutages": [],
    "mots_cles_trouves": [],
    "erreurs_transcription_tolerees": 0,
}


def step_document(step: StoredStep, history: StepHistory) -> dict[str, object]:
    """A stored step as people read it: the form that it has in the result document."""
    finding = step.finding
    return {
        "traite": finding.traite,
        "conforme": finding.conforme.value,
        "score": finding.score,
        "niveau_conformite": finding.niveau_conformite.value,
        "commentaire_global": finding.commentaire_global,
        "minutages": list(finding.minutages),
        "mots_cles_trouves": list(finding.mots_cles_trouves),
        "erreurs_transcription_tolerees": finding.erreurs_transcription_tolerees,
        "error": None,
        "points_controle": [point_document(point) for point in finding.points],
        **_metadata_and_usage(step),
        "human_review": history.human_review,
        "rerun_history": history.rerun_history,
    }


def missing_step_document(step: MissingStep) -> dict[str, object]:
    """In the same form: `error` is why the model could not judge the step, and there is no
    verdict."""
    nothing: Document = {"points_controle": [], "human_review": [], "rerun_history": []}
    return {**_NO_VERDICT, "error": step.error, **_metadata_and_usage(step), **nothing}


def missing_step_summary(step: MissingStep) -> dict[str, object]:
    no_verdict = {to_camel(name): value for name, value in _NO_VERDICT.items()}
    return {**_summary_row(step), **no_verdict, "totalCitations": 0, "error": step.error}


def _metadata_and_usage(step: StoredStep | MissingStep) -> dict[str, object]:
    return {
        "step_metadata": {
            "position": step.position,
            "name": step.name,
            "severity": step.severity,
            "is_critical": step.is_critical,
            "weight": step.weight,
        },
        "usage": {
            "prompt_tokens": step.usage.prompt_tokens,
            "completion_tokens": step.usage.completion_tokens,
            "total_tokens": step.usage.total_tokens,
        },
    }


def _summary_row(step: StoredStep | MissingStep) -> dict[str, object]:
    return {
        "stepPosition": step.position,
        "stepName": step.name,
        "severityLevel": step.severity,
        "isCritical": step.is_critical,
        "weight": step.weight,
        "totalTokens": step.usage.total_tokens,
    }


def step_summary(step: StoredStep) -> dict[str, object]:
    """The step alone, as its row: without control points, quotations and trails."""
    finding = step.finding
    return {
        **_summary_row(step),
        "traite": finding.traite,
        "conforme": finding.conforme.value,
        "score": finding.score,
        "niveauConformite": finding.niveau_conformite.value,
        "commentaireGlobal": finding.commentaire_global,
        "motsClesTrouves": list(finding.mots_cles_trouves),
        "minutages": list(finding.minutages),
        "erreursTranscriptionTolerees": finding.erreurs_transcription_tolerees,
        "totalCitations": finding.citations,
        "error": None,
    }


def point_document(point: ControlPoint) -> Document:
    return {
        "point": point.point,
        "statut": point.statut.value,
        "commentaire": point.commentaire,
        "minutages": list(point.minutages),
        "erreur_transcription_notee": point.erreur_transcription_notee,
        "variation_phonetique_utilisee": point.variation_phonetique_utilisee,
        "citations": [asdict(citation) for citation in point.citations],
    }


def fiche_not_found(fiche_id: str) -> str:
    return f"Fiche {fiche_id} not found (404)"


def nothing_to_judge(fiche_id: str, recordings: int, transcribed: int) -> str:
    """Why the timeline is empty."""
    if recordings == 0:
        return f"No recordings found for fiche {fiche_id} (cannot run audit)"
    if transcribed == 0:
        return f"No transcriptions available for fiche {fiche_id} ({transcribed}/{recordings})"
    return f"No usable transcribed recordings available for fiche {fiche_id} (timeline empty)"


def transcripts_missing(fiche_id: str, coverage: TranscriptCoverage, cause: str | None) -> str:
    sentence = f"Audit incomplete: {coverage.sentence}"
    if not coverage.transcribed:
        sentence += f". {nothing_to_judge(fiche_id, coverage.recordings, 0)}"
    return f"{sentence}: {cause}" if cause else sentence


def steps_missing(judged: int, steps: int, cause: str) -> str:
    """One cause stands for all."""
    return f"Audit incomplete: {steps_sentence(judged, steps)}: {cause}"
