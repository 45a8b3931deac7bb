"""The four events of the contract, with what makes each of them one."""

from dataclasses import dataclass
from datetime import datetime

from automation_pipeline.core.events import Event
from automation_pipeline.enrichment.domain.evaluation import Evaluation
from automation_pipeline.enrichment.domain.record import SourceOutcome
from automation_pipeline.enrichment.domain.vocabulary import PRODUCER, Trigger

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


def requested(  # noqa: PLR0913  what the contract wants told
    request_id: int,
    siren: str,
    siret: str | None,
    trigger: Trigger,
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


def started(job: JobFacts, now: datetime) -> Event:
    payload: dict[str, object] = {"job_id": str(job.job_id), "company_siren": job.siren, "attempt": job.attempt}
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


def completed(job: JobFacts, request_id: int | None, evaluation: Evaluation, now: datetime) -> Event:
    """Once for each request that waited, in its tenant's name; of a job that nobody waited for, once."""
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


def _of_job(job: JobFacts, name: str, change: str, now: datetime, payload: dict[str, object]) -> Event:
    key = f"enrichment:{job.job_id}:{name}:{change}"
    return Event(job.tenant_id, key, name, PRODUCER, job.correlation_id, now, payload)
