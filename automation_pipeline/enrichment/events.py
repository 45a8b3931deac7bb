"""Events and log fields of the contract."""

from dataclasses import dataclass
from datetime import datetime

from automation_pipeline.core.events import Event
from automation_pipeline.enrichment.models import PRODUCER, EnrichmentTrigger, SourceOutcome
from automation_pipeline.enrichment.rules.evaluation import Evaluation

REQUESTED, STARTED = "CompanyEnrichmentRequested", "CompanyEnrichmentStarted"
SOURCE_FETCHED, COMPLETED = "CompanyEnrichmentSourceFetched", "CompanyEnrichmentCompleted"


@dataclass(frozen=True, kw_only=True)
class EnrichmentFacts:
    """The data that events and log lines have in common. `job_id` is None for a request without a job."""

    job_id: int | None
    siren: str
    tenant_id: str
    correlation_id: str
    attempt: int = 0


def enrichment_requested(  # noqa: PLR0913  the fields of the contract
    request_id: int,
    siren: str,
    siret: str | None,
    trigger: EnrichmentTrigger,
    *,
    tenant_id: str,
    correlation_id: str,
    now: datetime,
) -> Event:
    """Every request emits this event, even if it needs no job."""
    payload: dict[str, object] = {
        "request_id": str(request_id),
        "company_siren": siren,
        "company_siret": siret,
        "trigger": trigger,
    }
    key = f"enrichment:{request_id}:{REQUESTED}:{trigger}:{round(now.timestamp() * 1_000_000)}"
    return Event(tenant_id, key, REQUESTED, PRODUCER, correlation_id, now, payload)


def enrichment_started(job: EnrichmentFacts, now: datetime) -> Event:
    return _job_event(job, STARTED, str(job.attempt), now, {"attempt": job.attempt})


def source_fetched(job: EnrichmentFacts, outcome: SourceOutcome, now: datetime) -> Event:
    payload: dict[str, object] = {
        "source_api": outcome.source,
        "status": outcome.status,
        "http_status": outcome.http_status,
        "error_code": outcome.error_code,
        "duration_ms": outcome.duration_ms,
        "attempts": outcome.attempts,
    }
    return _job_event(job, SOURCE_FETCHED, outcome.source, now, payload)


def enrichment_completed(
    job: EnrichmentFacts, request_id: int | None, evaluation: Evaluation, now: datetime
) -> Event:
    """One event per waiting request, for its tenant; one without a request if none waits."""
    request = None if request_id is None else str(request_id)
    payload: dict[str, object] = {
        "enrichment_status": evaluation.status,
        "sources_success_count": evaluation.success,
        "sources_failed_count": evaluation.failed,
        "core_identity_present": evaluation.core_identity_present,
        "required_sources_failed_count": evaluation.required_failed,
        "optional_sources_failed_count": evaluation.optional_failed,
        "request_id": request,
    }
    return _job_event(job, COMPLETED, request or "-", now, payload)


def _job_event(
    job: EnrichmentFacts, name: str, change: str, now: datetime, payload: dict[str, object]
) -> Event:
    key = f"enrichment:{job.job_id}:{name}:{change}"
    payload = {"job_id": str(job.job_id), "company_siren": job.siren, **payload}
    return Event(job.tenant_id, key, name, PRODUCER, job.correlation_id, now, payload)


def log_fields(
    event_type: str,
    facts: EnrichmentFacts,
    *,
    request_id: int | None = None,
    outcome: SourceOutcome | None = None,
) -> dict[str, object]:
    """All fields of the contract, with None for missing values. No field contains an answer of a source."""
    return {
        "correlation_id": facts.correlation_id,
        "tenant_id": facts.tenant_id,
        "request_id": None if request_id is None else str(request_id),
        "job_id": None if facts.job_id is None else str(facts.job_id),
        "company_siren": facts.siren,
        "source_api": outcome and outcome.source,
        "event_type": event_type,
        "http_status": outcome and outcome.http_status,
        "error_code": outcome and outcome.error_code,
        "error_message": outcome.error.message if outcome and outcome.error else None,
        "duration_ms": outcome and outcome.duration_ms,
    }
