"""What the outside hears of an audit: names and payloads for the realtime channels of the audit and its fiche."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from automation_pipeline.audits.domain.audit import Standing
from automation_pipeline.audits.domain.config import AuditConfig, AuditStep
from automation_pipeline.audits.domain.coverage import Coverage, coverage_document
from automation_pipeline.audits.domain.scoring import Compliance
from automation_pipeline.audits.domain.step_result import StepResult, UnjudgedStep
from automation_pipeline.core.events import Event
from automation_pipeline.core.instants import iso

PRODUCER = "audits"
TENANT = "main"


def _event(audit: Standing, name: str, at: datetime, payload: Mapping[str, object], key: str = "") -> Event:
    about = {
        "audit_id": audit.tracking_id,
        "audit_db_id": str(audit.audit_id),
        "fiche_id": audit.fiche_id,
        "event_id": f"{audit.tracking_id}:{name}{key}",
    }
    return Event(TENANT, about["event_id"], f"audit.{name}", PRODUCER, audit.tracking_id, at, {**about, **payload})


def started(audit: Standing, config: AuditConfig, at: datetime) -> Sequence[Event]:
    loaded = {
        "config_id": str(audit.audit_config_id),
        "config_name": config.name,
        "steps_count": len(config.steps),
        "status": "loaded",
    }
    begun = {
        "audit_config_id": str(audit.audit_config_id),
        "audit_config_name": config.name,
        "total_steps": len(config.steps),
        "started_at": iso(at),
        "status": "started",
    }
    return _event(audit, "started", at, begun), _event(audit, "config_loaded", at, loaded)


def transcription_check(audit: Standing, coverage: Coverage, at: datetime) -> Event:
    payload = {
        "total_recordings": coverage.recordings,
        "transcribed": len(coverage.heard),
        "needs_transcription": not coverage.is_whole,
        "status": "checked",
    }
    return _event(audit, "transcription_check", at, payload)


def analysis_started(audit: Standing, recordings: int, chunks: int, model: str, at: datetime) -> Sequence[Event]:
    generated = {"recordings_count": recordings, "total_chunks": chunks, "status": "generated"}
    analysing = {"total_steps": audit.steps, "model": model, "status": "analyzing"}
    return (
        _event(audit, "timeline_generated", at, generated),
        _event(audit, "analysis_started", at, analysing),
        progress(audit, "timeline", at),
    )


def step_started(audit: Standing, step: AuditStep, at: datetime) -> Event:
    payload = {
        "step_position": step.position,
        "step_name": step.name,
        "total_steps": audit.steps,
        "step_weight": step.weight,
        "is_critical": step.is_critical,
        "status": "processing",
    }
    return _event(audit, "step_started", at, payload, f":{step.position}")


def step_ended(audit: Standing, result: StepResult | UnjudgedStep, at: datetime) -> Event:
    """The score is the one that holds, after gating. A step may fail in several attempts."""
    step = result.step
    about = {"step_position": step.position, "step_name": step.name}
    if isinstance(result, UnjudgedStep):
        failed = {**about, "error": result.error, "status": "failed"}
        return _event(audit, "step_failed", at, failed, f":{step.position}:{_milliseconds(at)}")
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
    return _event(audit, "step_completed", at, completed, f":{step.position}")


def progress(audit: Standing, phase: str, at: datetime) -> Event:
    payload = {
        "completed_steps": audit.done,
        "total_steps": audit.steps,
        "failed_steps": audit.failed,
        "current_phase": phase,
        "progress_percentage": round(100 * audit.done / audit.steps) if audit.steps else 100,
        "status": "in_progress",
    }
    return _event(audit, "progress", at, payload, f":{phase}:{audit.done}")


def _verdict(compliance: Compliance) -> dict[str, object]:
    return {
        "overall_score": f"{compliance.earned}/{compliance.total_weight}",
        "score_percentage": f"{compliance.score_percentage:.2f}%",
        "niveau": str(compliance.niveau),
        "is_compliant": compliance.is_compliant,
        "critical_issues": f"{compliance.critical_passed}/{compliance.critical_total}",
    }


def completed(audit: Standing, compliance: Compliance, tokens: int, duration_ms: int, at: datetime) -> Sequence[Event]:
    whole = {
        **_verdict(compliance),
        "successful_steps": compliance.successful_steps,
        "failed_steps": compliance.failed_steps,
        "total_tokens": tokens,
        "duration_seconds": round(duration_ms / 1000, 3),
        "completed_at": iso(at),
        "status": "completed",
    }
    return (
        _event(audit, "compliance_calculated", at, {**_verdict(compliance), "status": "calculated"}),
        _event(audit, "completed", at, whole),
    )


def incomplete(audit: Standing, coverage: Coverage, at: datetime) -> Event:
    """An attempt ended without a grade; another one may end so too."""
    payload = {
        "error": audit.error,
        "recordings": coverage_document(coverage),
        "completed_steps": audit.done,
        "failed_steps": audit.failed,
        "total_steps": audit.steps,
        "ended_at": iso(at),
        "status": "incomplete",
    }
    return _event(audit, "incomplete", at, payload, f":{_milliseconds(at)}")


def _milliseconds(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def failed(audit: Standing, error: str, stage: str, at: datetime) -> Event:
    payload = {
        "error": error,
        "failed_phase": stage,
        "failed_at": iso(at),
        "partial_results": {"completed_steps": audit.done, "total_steps": audit.steps},
        "status": "failed",
    }
    return _event(audit, "failed", at, payload)
