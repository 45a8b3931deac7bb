"""The result of an audit, computed from its stored steps: columns, documents, and the sentences of failures."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime

from pydantic.alias_generators import to_camel

from automation_pipeline.audits.models.audits import AuditRecord, AuditSummary, TranscriptCoverage
from automation_pipeline.audits.models.chat import Usage
from automation_pipeline.audits.models.findings import (
    ControlPoint,
    MissingStep,
    StepFinding,
    StepHistory,
    StoredStep,
)
from automation_pipeline.audits.rules.verdicts import Compliance
from automation_pipeline.core.clock import iso

Document = Mapping[str, object]


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
    """The result while the audit runs."""
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


def step_document(step: StoredStep | MissingStep, history: StepHistory) -> dict[str, object]:
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
        "human_review": history.human_review,
        "rerun_history": history.rerun_history,
    }


def step_summary(step: StoredStep | MissingStep) -> dict[str, object]:
    """The step without control points, citations and history."""
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


def fiche_not_found(fiche_id: str) -> str:
    return f"Fiche {fiche_id} not found (404)"


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
