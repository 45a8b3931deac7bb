"""Events and log entries of audits, reruns and batches."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from automation_pipeline.audits.models.audits import (
    AuditBatchSummary,
    AuditSummary,
    Rerun,
    StepResult,
    TranscriptCoverage,
    UnjudgedStep,
)
from automation_pipeline.audits.models.configs import AuditConfig, AuditStep
from automation_pipeline.audits.rules.verdicts import Compliance
from automation_pipeline.core.clock import iso
from automation_pipeline.core.events import Event, WorkflowLogEntry

PRODUCER = "audits"
TENANT = "main"

Document = Mapping[str, object]


def _audit_event(
    audit: AuditSummary, name: str, at: datetime, payload: Document, key: str = ""
) -> Event:
    """`key` distinguishes events of one name of one audit."""
    event_id = f"{audit.tracking_id}:{name}{key}"
    about = {
        "audit_id": audit.tracking_id,
        "audit_db_id": str(audit.audit_id),
        "fiche_id": audit.fiche_id,
        "event_id": event_id,
    }
    return Event(
        TENANT, event_id, f"audit.{name}", PRODUCER, audit.tracking_id, at, {**about, **payload}
    )


def started(audit: AuditSummary, config: AuditConfig, at: datetime) -> Sequence[Event]:
    return [
        _audit_event(
            audit,
            "started",
            at,
            {
                "audit_config_id": str(audit.audit_config_id),
                "audit_config_name": config.name,
                "total_steps": len(config.steps),
                "started_at": iso(at),
                "status": "started",
            },
        ),
        _audit_event(
            audit,
            "config_loaded",
            at,
            {
                "config_id": str(audit.audit_config_id),
                "config_name": config.name,
                "steps_count": len(config.steps),
                "status": "loaded",
            },
        ),
    ]


def analysis_started(
    audit: AuditSummary, coverage: TranscriptCoverage, timeline: Document, model: str, at: datetime
) -> Sequence[Event]:
    """`timeline` has the number of recordings and chunks."""
    check = {
        "total_recordings": coverage.recordings,
        "transcribed": len(coverage.transcribed),
        "needs_transcription": not coverage.is_whole,
        "status": "checked",
    }
    return [
        _audit_event(audit, "transcription_check", at, check),
        _audit_event(audit, "timeline_generated", at, {**timeline, "status": "generated"}),
        _audit_event(
            audit,
            "analysis_started",
            at,
            {"total_steps": audit.steps, "model": model, "status": "analyzing"},
        ),
        progress(audit, "timeline", at),
    ]


def step_started(audit: AuditSummary, step: AuditStep, at: datetime) -> Event:
    return _audit_event(
        audit,
        "step_started",
        at,
        {
            "step_position": step.position,
            "step_name": step.name,
            "total_steps": audit.steps,
            "step_weight": step.weight,
            "is_critical": step.is_critical,
            "status": "processing",
        },
        f":{step.position}",
    )


def step_ended(audit: AuditSummary, result: StepResult | UnjudgedStep, at: datetime) -> Event:
    """The score is the gated one. A step may fail in several attempts."""
    step, key = result.step, f":{result.step.position}"
    about = {"step_position": step.position, "step_name": step.name}
    if isinstance(result, UnjudgedStep):
        return _audit_event(
            audit,
            "step_failed",
            at,
            {**about, "error": result.error, "status": "failed"},
            f"{key}:{_milliseconds(at)}",
        )
    return _audit_event(
        audit,
        "step_completed",
        at,
        {
            **about,
            "score": min(result.finding.score, step.weight),
            "max_score": step.weight,
            "conforme": result.finding.conforme == "CONFORME",
            "total_citations": result.finding.citations,
            "tokens_used": result.usage.total_tokens,
            "status": "completed",
        },
        key,
    )


def progress(audit: AuditSummary, phase: str, at: datetime) -> Event:
    return _audit_event(
        audit,
        "progress",
        at,
        {
            "completed_steps": audit.done,
            "total_steps": audit.steps,
            "failed_steps": audit.failed,
            "current_phase": phase,
            "progress_percentage": round(100 * audit.done / audit.steps) if audit.steps else 100,
            "status": "in_progress",
        },
        f":{phase}:{audit.done}",
    )


def completed(
    audit: AuditSummary, compliance: Compliance, tokens: int, duration_ms: int, at: datetime
) -> Sequence[Event]:
    verdict = {
        "overall_score": f"{compliance.earned}/{compliance.total_weight}",
        "score_percentage": f"{compliance.score_percentage:.2f}%",
        "niveau": str(compliance.niveau),
        "is_compliant": compliance.is_compliant,
        "critical_issues": f"{compliance.critical_passed}/{compliance.critical_total}",
    }
    return [
        _audit_event(audit, "compliance_calculated", at, {**verdict, "status": "calculated"}),
        _audit_event(
            audit,
            "completed",
            at,
            {
                **verdict,
                "successful_steps": compliance.successful_steps,
                "failed_steps": compliance.failed_steps,
                "total_tokens": tokens,
                "duration_seconds": round(duration_ms / 1000, 3),
                "completed_at": iso(at),
                "status": "completed",
            },
        ),
    ]


def incomplete(audit: AuditSummary, coverage: TranscriptCoverage, at: datetime) -> Event:
    """An attempt ended without a grade. Several attempts may."""
    return _audit_event(
        audit,
        "incomplete",
        at,
        {
            "error": audit.error,
            "recordings": coverage.document,
            "completed_steps": audit.done,
            "failed_steps": audit.failed,
            "total_steps": audit.steps,
            "ended_at": iso(at),
            "status": "incomplete",
        },
        f":{_milliseconds(at)}",
    )


def failed(audit: AuditSummary, error: str, stage: str, at: datetime) -> Event:
    return _audit_event(
        audit,
        "failed",
        at,
        {
            "error": error,
            "failed_phase": stage,
            "failed_at": iso(at),
            "partial_results": {"completed_steps": audit.done, "total_steps": audit.steps},
            "status": "failed",
        },
    )


def _milliseconds(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def _rerun_event(
    audit: AuditSummary, rerun: Rerun, name: str, at: datetime, payload: Document
) -> Event:
    location, event_id = rerun.location, f"{rerun.rerun_id}:{name}"
    about: dict[str, object] = {
        "rerun_id": rerun.rerun_id,
        "audit_id": str(location.audit_id),
        "audit_db_id": str(location.audit_id),
        "step_position": location.position,
        "event_id": event_id,
    }
    if location.point is not None:
        about |= {"rerun_scope": "control_point", "control_point_index": location.point}
    return Event(
        TENANT, event_id, f"audit.{name}", PRODUCER, audit.tracking_id, at, {**about, **payload}
    )


def rerun_started(audit: AuditSummary, rerun: Rerun, at: datetime) -> Event:
    return _rerun_event(
        audit, rerun, "step_started", at, {"started_at": iso(at), "status": "rerunning"}
    )


def rerun_completed(
    audit: AuditSummary, rerun: Rerun, before: Document, after: Document, at: datetime
) -> Event:
    return _rerun_event(
        audit,
        rerun,
        "step_completed",
        at,
        {
            "original": before,
            "rerun": after,
            "comparison": {"changed": [name for name in before if before[name] != after[name]]},
            "completed_at": iso(at),
            "status": "rerun_completed",
        },
    )


def rerun_failed(audit: AuditSummary, rerun: Rerun, error: str, at: datetime) -> Event:
    """The stored finding stays."""
    return _rerun_event(audit, rerun, "step_failed", at, {"error": error, "status": "failed"})


def batch_item_ended(batch: AuditBatchSummary, at: datetime) -> Sequence[Event]:
    """The progress of the batch and, with its last audit, its completion."""
    counts = {
        "batch_id": batch.batch_id,
        "operation_type": "audit",
        "total": batch.total,
        "completed": batch.succeeded,
        "failed": batch.failed,
    }
    percentage = round(100 * batch.ended / batch.total) if batch.total else 100
    key = f"audit-batch-progress-{batch.batch_id}-{batch.ended}"
    payload = {**counts, "progress_percentage": percentage}
    events = [Event(TENANT, key, "batch.progress", PRODUCER, batch.batch_id, at, payload)]
    if batch.completed_at is not None:
        end, lasted = batch.completed_at, batch.completed_at - batch.started_at
        key = f"audit-batch-completed-{batch.batch_id}"
        payload = {**counts, "duration_ms": round(1000 * lasted.total_seconds())}
        events.append(Event(TENANT, key, "batch.completed", PRODUCER, batch.batch_id, end, payload))
    return events


def audit_note(
    audit: AuditSummary, message: str, *, level: str = "info", data: Document | None = None
) -> WorkflowLogEntry:
    return WorkflowLogEntry(
        "audit", "fiche", audit.fiche_id, str(audit.audit_id), message, level=level, data=data or {}
    )
