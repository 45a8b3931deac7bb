"""Events and log fields of the contract."""

from dataclasses import dataclass
from datetime import datetime

from automation_pipeline.core.events import Event
from automation_pipeline.enrichment.models import PRODUCER, EnrichmentTrigger, SourceOutcome
from automation_pipeline.enrichment.rules.evaluation import Evaluation

REQUESTED, STARTED = "CompanyEnrichmentRequested", "CompanyEnrichmentStarted"
SOURCE_FETCHED, COMPLETED = "CompanyEnrichmentSourceFetched", "CompanyEnrichmentCompleted"


@dataclass(frozen=True, kw_only=True)
class JobFacts:
    """Of whom events of a job are told, and about what."""

    job_id: int
    siren: str
    attempt: int
    tenant_id: str
    correlation_id: str


def enrichment_requested(  # noqa: PLR0913  what the contract wants told
    request_id: int,
    siren: str,
    siret: str | None,
    trigger: EnrichmentTrigger,
    *,
    tenant_id: str,
    correlation_id: str,
    now: datetime,
) -> Event:
    """Every time somebody asks, also where the answer is there already."""
    payload: dict[str, object] = {
        "request_id": str(request_id), "company_siren": siren, "company_siret": siret, "trigger": trigger,
    }  # fmt: skip
    key = f"enrichment:{request_id}:{REQUESTED}:{trigger}:{round(now.timestamp() * 1_000_000)}"
    return Event(tenant_id, key, REQUESTED, PRODUCER, correlation_id, now, payload)


def enrichment_started(job: JobFacts, now: datetime) -> Event:
    payload: dict[str, object] = {
        "job_id": str(job.job_id),
        "company_siren": job.siren,
        "attempt": job.attempt,
    }
    return _of_job(job, STARTED, f"{job.attempt}", now, payload)


def source_fetched(job: JobFacts, outcome: SourceOutcome, now: datetime) -> Event:
    error = outcome.error
    payload: dict[str, object] = {
        "job_id": str(job.job_id),
        "company_siren": job.siren,
        "source_api": outcome.source,
        "status": outcome.status,
        "http_status": error.http_status if error else 200,
        "error_code": error.error_code if error else None,
        "duration_ms": outcome.duration_ms,
        "attempts": outcome.attempts,
    }
    return _of_job(job, SOURCE_FETCHED, outcome.source, now, payload)


def enrichment_completed(
    job: JobFacts, request_id: int | None, evaluation: Evaluation, now: datetime
) -> Event:
    """Once for each request that waited, in its tenant's name; of a job that nobody waited for,
    once."""
    payload: dict[str, object] = {
        "job_id": str(job.job_id),
        "company_siren": job.siren,
        "enrichment_status": evaluation.status,
        "sources_success_count": evaluation.success,
        "sources_failed_count": evaluation.failed,
        "core_identity_present": evaluation.core_identity_present,
        "required_sources_failed_count": evaluation.required_failed,
        "optional_sources_failed_count": evaluation.optional_failed,
        "request_id": None if request_id is None else str(request_id),
    }
    return _of_job(job, COMPLETED, "-" if request_id is None else str(request_id), now, payload)


def _of_job(
    job: JobFacts, name: str, change: str, now: datetime, payload: dict[str, object]
) -> Event:
    key = f"enrichment:{job.job_id}:{name}:{change}"
    return Event(job.tenant_id, key, name, PRODUCER, job.correlation_id, now, payload)


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


def job_log_fields(
    job: JobFacts, event_type: str, outcome: SourceOutcome | None = None
) -> dict[str, object]:
    return log_fields(
        event_type,
        siren=job.siren,
        tenant_id=job.tenant_id,
        correlation_id=job.correlation_id,
        job_id=job.job_id,
        outcome=outcome,
    )
