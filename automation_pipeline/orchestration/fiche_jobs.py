"""Transcriptions, audits and range fetches in Dagster: the work of a Dagster run, its end when the
run fails, and its metadata."""

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from automation_pipeline.audits.audits import fail_audit
from automation_pipeline.audits.models.audits import AuditSummary, FicheAuditRequest
from automation_pipeline.audits.requests import check_automation_links
from automation_pipeline.bootstrap import Services
from automation_pipeline.fiches.fetch_jobs import fail_range
from automation_pipeline.fiches.models.fetch_jobs import FetchJob
from automation_pipeline.orchestration.job_registry import REQUEST_TAG, config_of
from automation_pipeline.orchestration.ops import Metadata, as_metadata, check_ids, table
from automation_pipeline.storage.run_requests import filed_requests
from automation_pipeline.transcription.models import (
    TranscriptionPriority,
    TranscriptionRunRequest,
    TranscriptionSummary,
    why_incomplete,
)
from automation_pipeline.transcription.queries.runs import failed_recordings, list_summaries
from automation_pipeline.transcription.runs import fail_unplanned


def transcription_of(run: dg.DagsterRun) -> TranscriptionRunRequest:
    """Retries of a Dagster run work on the same transcription run."""
    config = config_of(run)
    return TranscriptionRunRequest(
        config.get("run_id") or run.root_run_id or run.run_id,
        str(config["fiche_id"]),
        TranscriptionPriority(config.get("priority", "normal")),
        run.run_id,
    )


def fail_transcription_of(run: dg.DagsterRun, reason: str, services: Services) -> None:
    """Record that a Dagster run failed before it planned its transcription run. A planned run stays
    open: other processes may work on it, and the sweep ends it if none does."""
    request, key = transcription_of(run), run.tags.get(REQUEST_TAG)
    with services.database.transaction() as session:
        recorded = bool(list_summaries(session, [request.run_id]))
        never_taken = key is not None and any(
            one.state == "waiting" for one in filed_requests(session, [key])
        )
        if recorded or never_taken:
            fail_unplanned(request, reason, session)


def transcription_result(status: TranscriptionSummary, services: Services) -> Metadata:
    """The metadata of an ended run. Raises dg.Failure with the same metadata if a recording could
    not be transcribed."""
    with services.database.reading() as session:
        failed = failed_recordings(session, [status.run_id])[status.run_id]
    shown, fault = transcription_metadata(status, failed), why_incomplete(status, failed)
    if fault is not None:
        raise dg.Failure(fault, metadata=shown)
    return shown


def transcription_metadata(
    status: TranscriptionSummary, failed: Sequence[tuple[str, str]] = ()
) -> Metadata:
    return as_metadata(
        {
            "run": status.run_id,
            "status": status.status,
            "recordings": status.total,
            "transcribed": status.transcribed,
            "new": status.new,
            "failed": status.failed,
            "failed_recordings": table(("recording", "reason"), failed),
            "error": status.error,
        }
    )


def tracking_id_of(run: dg.DagsterRun) -> str:
    """Retries of a run work on its audit."""
    config = config_of(run)
    generated = (
        f"audit-{config['fiche_id']}-{config['audit_config_id']}-{run.root_run_id or run.run_id}"
    )
    return config.get("tracking_id") or generated


def audit_request(
    config: Mapping[str, Any], run: dg.DagsterRun, services: Services
) -> FicheAuditRequest:
    """Raises InvalidInputError for ids that are out of range, and for a schedule or run that does not
    exist."""
    links = {name: config[name] for name in ("automation_schedule_id", "automation_run_id")}
    check_ids(audit_config_id=config["audit_config_id"], **links)
    with services.database.reading() as session:
        check_automation_links(session, links, "Invalid config")
    return FicheAuditRequest(
        tracking_id=tracking_id_of(run),
        fiche_id=config["fiche_id"],
        audit_config_id=config["audit_config_id"],
        use_rlm=config["use_rlm"],
        trigger_source=config["trigger_source"],
        user_id=config["user_id"],
        schedule_id=config["automation_schedule_id"],
        run_id=config["automation_run_id"],
        dagster_run_id=run.run_id,
    )


def fail_audit_of(run: dg.DagsterRun, reason: str, services: Services) -> None:
    """Fail the audit of a Dagster run that failed permanently."""
    with services.database.transaction() as session:
        fail_audit(session, tracking_id_of(run), reason, "run")


def audit_metadata(audit: AuditSummary) -> Metadata:
    score = audit.score_percentage
    return as_metadata(
        {
            "audit": str(audit.audit_id),
            "status": audit.status,
            "niveau": str(audit.niveau),
            "score": None if score is None else float(score),
            "steps": audit.steps,
            "failed_steps": audit.failed,
            "error": audit.error,
        }
    )


def step_metadata(document: Mapping[str, Any]) -> Metadata:
    """The metadata of a step after a rerun."""
    step = document["step_metadata"]
    return as_metadata(
        {
            "step": step["name"],
            "conforme": document["conforme"],
            "score": document["score"],
            "weight": step["weight"],
            "reruns": len(document["rerun_history"]),
        }
    )


def fail_range_of(run: dg.DagsterRun, reason: str, services: Services) -> None:
    """Close the fetch job of a Dagster run that failed permanently."""
    job_id = str(config_of(run)["job_id"])
    fail_range(job_id, reason, database=services.database, clock=services.clock)


def fetch_job_metadata(job: FetchJob) -> Metadata:
    return as_metadata(
        {
            "job": job.id,
            "status": job.status.value,
            "days": job.total_days,
            "fetched_days": len(job.fetched),
            "failed_days": len(job.failed),
            "fiches": job.total_fiches,
            "error": job.error,
        }
    )
