"""The fields that every line about an enrichment has; `timestamp` and `level` are added by the log itself."""

from automation_pipeline.enrichment.domain.events import JobFacts
from automation_pipeline.enrichment.domain.record import SourceOutcome


def log_fields(  # noqa: PLR0913  the fields of the contract
    event_type: str,
    *,
    siren: str,
    tenant_id: str,
    correlation_id: str,
    request_id: int | None = None,
    job_id: int | None = None,
    outcome: SourceOutcome | None = None,
) -> dict[str, object]:
    """All of them are always there. Nothing of what a source answered is among them."""
    error = outcome.error if outcome else None
    status = (error.http_status if error else 200) if outcome else None
    return {
        "correlation_id": correlation_id,
        "tenant_id": tenant_id,
        "request_id": None if request_id is None else str(request_id),
        "job_id": None if job_id is None else str(job_id),
        "company_siren": siren,
        "source_api": outcome.source if outcome else None,
        "event_type": event_type,
        "http_status": status,
        "error_code": error.error_code if error else None,
        "error_message": error.message if error else None,
        "duration_ms": outcome.duration_ms if outcome else None,
    }


def of_job(job: JobFacts, event_type: str, outcome: SourceOutcome | None = None) -> dict[str, object]:
    return log_fields(
        event_type,
        siren=job.siren,
        tenant_id=job.tenant_id,
        correlation_id=job.correlation_id,
        job_id=job.job_id,
        outcome=outcome,
    )
