"""What an audit comes to, computed from its stored steps: the columns of its row and the document that people read."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from automation_pipeline.audits.domain.audit import Standing
from automation_pipeline.audits.domain.config import AuditConfig
from automation_pipeline.audits.domain.evidence import AuditGating
from automation_pipeline.audits.domain.scoring import Compliance, StepScore, score_audit
from automation_pipeline.audits.domain.step_result import MissingStep, StoredStep
from automation_pipeline.core.instants import iso

Document = Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class Frame:
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


def summary_columns(frame: Frame, steps: Sequence[StoredStep]) -> dict[str, object]:
    """The same after a first run, a rerun and a review: nothing of it is remembered apart from the steps."""
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
        "result_data": _document(frame, compliance, tokens),
    }


def incomplete_columns(
    audit: Standing, steps: Sequence[StoredStep | MissingStep], coverage: Document, started_at: datetime, now: datetime
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
                    "not_judged": [{"position": step.position, "error": step.error} for step in missing],
                },
            },
            "statistics": {"successful_steps": judged, "failed_steps": len(missing), "total_tokens": tokens},
            "metadata": {"started_at": iso(started_at), "ended_at": iso(now)},
        },
    }


def running_document(frame_of: Document, started_at: datetime, approach: Document) -> Document:
    """What is read while the audit runs. `frame_of` holds how it was triggered, as far as that is known."""
    known = {name: value for name, value in frame_of.items() if value is not None}
    return {"status": "running", "started_at": iso(started_at), "approach": approach, **known}


def _document(frame: Frame, compliance: Compliance, tokens: int) -> Document:
    verdict = {
        "score": float(compliance.score_percentage),
        "niveau": compliance.niveau,
        "points_critiques": f"{compliance.critical_passed}/{compliance.critical_total}",
        "poids_obtenu": compliance.earned,
        "poids_total": compliance.total_weight,
    }
    config = {"id": str(frame.config_id), "name": frame.config.name, "description": frame.config.description}
    return {
        "audit_db_id": str(frame.audit_id),
        "audit_tracking_id": frame.tracking_id,
        "audit": {
            "config": config,
            "fiche": {"fiche_id": frame.fiche_id, "prospect_name": frame.prospect_name, "groupe": frame.groupe},
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
