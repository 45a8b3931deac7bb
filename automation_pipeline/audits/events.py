"""Events and log entries of audits, reruns and batches."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from automation_pipeline.audits.models.audits import (
    AuditSummary,
    TranscriptCoverage,
    coverage_document,
)
from automation_pipeline.audits.models.configs import AuditConfig, AuditStep
from automation_pipeline.audits.models.findings import StepResult, UnjudgedStep
from automation_pipeline.audits.rules.reviews import Rerun
from automation_pipeline.audits.rules.verdicts import Compliance
from automation_pipeline.core.clock import iso
from automation_pipeline.core.events import Event, WorkflowLogEntry

PRODUCER = "audits"
TENANT = "main"


def _audit_event(
    audit: AuditSummary, name: str, at: datetime, payload: Mapping[str, object], key: str = ""
) -> Event:
    about = {
        "audit_id": audit.tracking_id,
        "audit_db_id": str(audit.audit_id),
        "fiche_id": audit.fiche_id,
        "event_id": f"{audit.tracking_id}:{name}{key}",
    }
    return Event(
        TENANT,
        about["event_id"],
        f"audit.{name}",
        PRODUCER,
        audit.tracking_id,
        at,
        {**about, **payload},
    )


def started(audit: AuditSummary, config: AuditConfig, at: datetime) -> Sequence[Event]:
    loaded = {
        "config_id": str(audit.audit_config_id),
        "config_name": config.name,
        "steps_count": len(config.steps),
        "status": "loaded",
    }
    start = {
        "audit_config_id": str(audit.audit_config_id),
        "audit_config_name": config.name,
        "total_steps": len(config.steps),
        "started_at": iso(at),
        "status": "started",
    }
    return _audit_event(audit, "started", at, start), _audit_event(
        audit, "config_loaded", at, loaded
    )


def transcription_check(audit: AuditSummary, coverage: TranscriptCoverage, at: datetime) -> Event:
    payload = {
        "total_recordings": coverage.recordings,
        "transcribed": len(coverage.transcribed),
        "needs_transcription": not coverage.is_whole,
        "status": "checked",
    }
    return _audit_event(audit, "transcription_check", at, payload)


def analysis_started(
    audit: AuditSummary, recordings: int, chunks: int, model: str, at: datetime
) -> Sequence[Event]:
    generated = {"recordings_count": recordings, "total_chunks": chunks, "status": "generated"}
    analysing = {"total_steps": audit.steps, "model": model, "status": "analyzing"}
    return (
        _audit_event(audit, "timeline_generated", at, generated),
        _audit_event(audit, "analysis_started", at, analysing),
        progress(audit, "timeline", at),
    )


def step_started(audit: AuditSummary, step: AuditStep, at: datetime) -> Event:
    payload = {
        "step_position": step.position,
        "step_name": step.name,
        "total_steps": audit.steps,
        "step_weight": step.weight,
        "is_critical": step.is_critical,
        "status": "processing",
    }
    return _audit_event(audit, "step_started", at, payload, f":{step.position}")


def step_ended(audit: AuditSummary, result: StepResult | UnjudgedStep, at: datetime) -> Event:
    """The score is the gated one. A step may fail in several attempts."""
    step = result.step
    about = {"step_position": step.position, "step_name": step.name}
    if isinstance(result, UnjudgedStep):
        failed = {**about, "error": result.error, "status": "failed"}
        return _audit_event(
            audit, "step_failed", at, failed, f":{step.position}:{_milliseconds(at)}"
        )
    finding = result.finding
    completed = {
        **about,
        "score": min(finding.score, step.weight),
        "max_score": step.weight,
        "conforme": finding.conforme == "CONFORME",
        "total_citations": finding.citations,
        "tokens_used": result.usage.total_tokens,
        "status": "completed",
    }
    return _audit_event(audit, "step_completed", at, completed, f":{step.position}")


def progress(audit: AuditSummary, phase: str, at: datetime) -> Event:
    payload = {
        "completed_steps": audit.done,
        "total_steps": audit.steps,
        "failed_steps": audit.failed,
        "current_phase": phase,
        "progress_percentage": round(100 * audit.done / audit.steps) if audit.steps else 100,
        "status": "in_progress",
    }
    return _audit_event(audit, "progress", at, payload, f":{phase}:{audit.done}")


def _verdict(compliance: Compliance) -> dict[str, object]:
    return {
        "overall_score": f"{compliance.earned}/{compliance.total_weight}",
        "score_percentage": f"{compliance.score_percentage:.2f}%",
        "niveau": str(compliance.niveau),
        "is_compliant": compliance.is_compliant,
        "critical_issues": f"{compliance.critical_passed}/{compliance.critical_total}",
    }


def completed(
    audit: AuditSummary, compliance: Compliance, tokens: int, duration_ms: int, at: datetime
) -> Sequence[Event]:
    result = {
        **_verdict(compliance),
        "successful_steps": compliance.successful_steps,
        "failed_steps": compliance.failed_steps,
        "total_tokens": tokens,
        "duration_seconds": round(duration_ms / 1000, 3),
        "completed_at": iso(at),
        "status": "completed",
    }
    return (
        _audit_event(
            audit, "compliance_calculated", at, {**_verdict(compliance), "status": "calculated"}
        ),
        _audit_event(audit, "completed", at, result),
    )


def incomplete(audit: AuditSummary, coverage: TranscriptCoverage, at: datetime) -> Event:
    """An attempt ended without a grade. Several attempts may."""
    payload = {
        "error": audit.error,
        "recordings": coverage_document(coverage),
        "completed_steps": audit.done,
        "failed_steps": audit.failed,
        "total_steps": audit.steps,
        "ended_at": iso(at),
        "status": "incomplete",
    }
    return _audit_event(audit, "incomplete", at, payload, f":{_milliseconds(at)}")


def _milliseconds(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def failed(audit: AuditSummary, error: str, stage: str, at: datetime) -> Event:
    payload = {
        "error": error,
        "failed_phase": stage,
        "failed_at": iso(at),
        "partial_results": {"completed_steps": audit.done, "total_steps": audit.steps},
        "status": "failed",
    }
    return _audit_event(audit, "failed", at, payload)


Document = Mapping[str, object]


def _rerun_event(
    audit: AuditSummary, rerun: Rerun, name: str, at: datetime, payload: Document
) -> Event:
    place = rerun.place
    about: dict[str, object] = {
        "rerun_id": rerun.rerun_id,
        "audit_id": str(place.audit_id),
        "audit_db_id": str(place.audit_id),
        "step_position": place.position,
        "event_id": f"{rerun.rerun_id}:{name}",
    }
    if place.point is not None:
        about |= {"rerun_scope": "control_point", "control_point_index": place.point}
    key = f"{rerun.rerun_id}:{name}"
    return Event(
        TENANT, key, f"audit.{name}", PRODUCER, audit.tracking_id, at, {**about, **payload}
    )


def rerun_started(audit: AuditSummary, rerun: Rerun, at: datetime) -> Event:
    return _rerun_event(
        audit, rerun, "step_started", at, {"started_at": iso(at), "status": "rerunning"}
    )


def rerun_completed(
    audit: AuditSummary, rerun: Rerun, previous: Document, following: Document, at: datetime
) -> Event:
    payload = {
        "original": previous,
        "rerun": following,
        "comparison": {"changed": [name for name in previous if previous[name] != following[name]]},
        "completed_at": iso(at),
        "status": "rerun_completed",
    }
    return _rerun_event(audit, rerun, "step_completed", at, payload)


def rerun_failed(audit: AuditSummary, rerun: Rerun, error: str, at: datetime) -> Event:
    """The stored finding stays."""
    return _rerun_event(audit, rerun, "step_failed", at, {"error": error, "status": "failed"})


def _batch_event(
    batch_id: str, key: str, name: str, at: datetime, payload: Mapping[str, object]
) -> Event:
    return Event(TENANT, key, name, PRODUCER, batch_id, at, {"batch_id": batch_id, **payload})


def batch_progress(batch_id: str, total: int, succeeded: int, failed: int, at: datetime) -> Event:
    ended = succeeded + failed
    payload = {
        "operation_type": "audit",
        "total": total,
        "completed": succeeded,
        "failed": failed,
        "progress_percentage": round(100 * ended / total) if total else 100,
    }
    return _batch_event(
        batch_id, f"audit-batch-progress-{batch_id}-{ended}", "batch.progress", at, payload
    )


def batch_completed(
    batch_id: str, total: int, succeeded: int, failed: int, span: tuple[datetime, datetime]
) -> Event:
    """`span` is the start and the end of the batch."""
    payload = {
        "operation_type": "audit",
        "total": total,
        "completed": succeeded,
        "failed": failed,
        "duration_ms": round(1000 * (span[1] - span[0]).total_seconds()),
    }
    return _batch_event(
        batch_id, f"audit-batch-completed-{batch_id}", "batch.completed", span[1], payload
    )


def audit_note(
    audit: AuditSummary,
    message: str,
    *,
    level: str = "info",
    data: Mapping[str, object] | None = None,
) -> WorkflowLogEntry:
    return WorkflowLogEntry(
        "audit", "fiche", audit.fiche_id, str(audit.audit_id), message, level=level, data=data or {}
    )
