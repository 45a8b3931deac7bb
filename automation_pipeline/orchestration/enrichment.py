"""Company enrichment in Dagster: the job of a run, and its metadata."""

from collections.abc import Coroutine, Mapping, Sequence
from datetime import datetime

import dagster as dg

from automation_pipeline.bootstrap import Services
from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.logs import correlation_id
from automation_pipeline.enrichment.jobs import work_enrichment
from automation_pipeline.enrichment.models import (
    DEFAULT_TENANT,
    EnrichmentJobShown,
    Requester,
    RequestOutcome,
    SourceStatus,
    check_configured,
)
from automation_pipeline.enrichment.queries.jobs import first_request_key
from automation_pipeline.enrichment.requests import request_enrichment
from automation_pipeline.enrichment.rules.evaluation import CompanyCoverage
from automation_pipeline.orchestration.ops import Metadata, as_metadata, check_ids, owner_of, table
from automation_pipeline.storage.run_requests import mark_taken


def job_metadata(job: EnrichmentJobShown) -> Metadata:
    rows = [
        (
            one.source_api,
            one.status,
            one.http_status,
            one.error_code,
            one.attempts,
            f"{one.duration_ms} ms",
        )
        for one in job.sources
    ]
    return as_metadata(
        {
            "company": job.company_siren,
            "job": str(job.id),
            "state": job.state,
            "status": job.status,
            "error": job.enrichment_error,
            "not_before": iso(job.not_before) if job.not_before else None,
            "attempt": job.attempt,
            "sources": table(("source", "status", "http", "error", "attempts", "took"), rows),
        }
    )


def companies_metadata(
    coverage: CompanyCoverage, sources: Sequence[SourceStatus], now: datetime
) -> Metadata:
    rows: list[tuple[object, ...]] = []
    for one in sources:
        until = one.open_until if one.is_resting(now) else None
        rest = ("", None) if until is None else (iso(until), one.open_reason)
        rows.append((one.source, *rest, one.failures, one.used_on(now.date())))
    statuses = {str(status): count for status, count in coverage.statuses.items()}
    return as_metadata(
        {
            "companies": coverage.companies,
            "masked": coverage.masked,
            **{f"status_{name.lower()}": count for name, count in statuses.items()},
            "coverage": table(("status", "companies"), statuses.items()),
            "ages": table(("age", "companies"), coverage.ages.items()),
            "sources": table(("source", "rests until", "why", "failures", "calls today"), rows),
        }
    )


def job_to_work(
    config: Mapping[str, object], context: dg.OpExecutionContext, services: Services
) -> int | None:
    """The job that the config names, or a new one for the company that it names. None if the
    company's data is fresh. A retried step finds the request of its first attempt."""
    job_id, siren, force = config["job_id"], config["siren"], bool(config["force"])
    check_ids(job_id=job_id if isinstance(job_id, int) else None)
    if (job_id is None) == (siren is None):
        raise InvalidInputError(
            "Give either job_id, for an existing job, or siren, to request one."
        )
    if force and siren is None:
        raise InvalidInputError("force needs siren.")
    check_configured(services.registries.sources)
    if isinstance(job_id, int):
        return job_id
    requester = Requester(
        tenant_id=DEFAULT_TENANT,
        correlation_id=correlation_id() or context.run_id,
        actor="launchpad",
        idempotency_key=f"dagster:{context.run_id}",
    )
    answer = request_enrichment(
        {"siren": siren},
        requester,
        options=services.registries.options,
        database=services.database,
        clock=services.clock,
        force=force,
    )
    if answer.outcome is RequestOutcome.ENQUEUED and answer.job_id is not None:
        # This run is the worker of the new job, so its request is already served.
        with services.database.transaction() as session:
            mark_taken(session, first_request_key(session, answer.job_id), context.run_id)
    return answer.job_id


def work_job(
    job_id: int, context: dg.OpExecutionContext, services: Services
) -> Coroutine[object, object, EnrichmentJobShown]:
    return work_enrichment(
        job_id,
        registries=services.registries,
        database=services.database,
        clock=services.clock,
        owner=owner_of(context.run),
    )
