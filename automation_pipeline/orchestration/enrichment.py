"""Company enrichment in Dagster."""

from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass

import dagster as dg

from automation_pipeline.bootstrap import Services
from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.logs import correlation_id
from automation_pipeline.enrichment.jobs import work_enrichment
from automation_pipeline.enrichment.models import (
    DEFAULT_TENANT,
    Asked,
    JobView,
    SourceView,
    check_configured,
    is_configured,
)
from automation_pipeline.enrichment.queries.jobs import first_request_key
from automation_pipeline.enrichment.queries.requests import Requester
from automation_pipeline.enrichment.requests import request_enrichment
from automation_pipeline.enrichment.rules.evaluation import CompanyCoverage, CoverageFinding
from automation_pipeline.orchestration import metadata
from automation_pipeline.orchestration.heartbeat import worker_name
from automation_pipeline.orchestration.metadata import table
from automation_pipeline.orchestration.ops import check_ids
from automation_pipeline.storage.run_requests import mark_taken

Page = dict[str, dg.MetadataValue]


def job_page(job: JobView) -> Page:
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
    sources = table(("source", "status", "http", "error", "attempts", "took"), rows)
    texts = {
        "company": job.company_siren,
        "job": str(job.id),
        "state": job.state,
        "status": job.status,
        "error": job.enrichment_error,
        "not_before": iso(job.not_before) if job.not_before else None,
    }
    return {
        **{name: metadata.text(text) for name, text in texts.items() if text is not None},
        "attempt": metadata.integer(job.attempt),
        **({"sources": metadata.markdown(sources)} if rows else {}),
    }


def companies_page(coverage: CompanyCoverage, sources: Sequence[SourceView]) -> Page:
    rows = [
        (
            one.source_api,
            "" if one.resting_until is None else iso(one.resting_until),
            one.reason,
            one.failures,
            one.calls_today,
        )
        for one in sources
    ]
    return {
        "companies": metadata.integer(coverage.companies),
        "masked": metadata.integer(coverage.masked),
        **{
            f"status_{status.lower()}": metadata.integer(count)
            for status, count in coverage.statuses.items()
        },
        "coverage": metadata.markdown(
            _counts("status", {str(status): count for status, count in coverage.statuses.items()})
        ),
        "ages": metadata.markdown(_counts("age", coverage.ages)),
        "sources": metadata.markdown(
            table(("source", "rests until", "why", "failures", "calls today"), rows)
        ),
    }


def judged(asset: str, finding: CoverageFinding) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        asset_key=asset,
        check_name=finding.check,
        passed=finding.passed,
        severity=dg.AssetCheckSeverity.ERROR if finding.grave else dg.AssetCheckSeverity.WARN,
        description=finding.says,
    )


def _counts(of: str, counts: Mapping[str, int]) -> str:
    return table((of, "companies"), counts.items())


_ACTOR = "launchpad"


@dataclass(frozen=True)
class EnrichmentLaunch:
    """What the config of a run says."""

    job_id: int | None
    siren: str | None
    force: bool

    def __post_init__(self) -> None:
        check_ids(job_id=self.job_id)
        if (self.job_id is None) == (self.siren is None):
            raise InvalidInputError(
                "Give job_id, for a job that is there, or siren, to ask for one: one of them."
            )
        if self.force and self.siren is None:
            raise InvalidInputError("force is for a company that is asked for: give siren with it.")


def has_registries(services: Services) -> bool:
    return is_configured(services.registries.sources)


def job_to_work(
    launch: EnrichmentLaunch, context: dg.OpExecutionContext, our: Services
) -> int | None:
    """None: what is known of the company is fresh. A retry of the step finds what was asked for
    before."""
    check_configured(our.registries.sources)
    if launch.job_id is not None:
        return launch.job_id
    asking = Requester(
        tenant_id=DEFAULT_TENANT,
        correlation_id=correlation_id() or context.run_id,
        actor=_ACTOR,
        idempotency_key=f"dagster:{context.run_id}",
    )
    knobs, given = our.registries.knobs, {"siren": launch.siren}
    made = request_enrichment(
        given, asking, knobs=knobs, database=our.database, clock=our.clock, force=launch.force
    )
    if made.asked is Asked.ENQUEUED and made.job_id is not None:
        with our.database.transaction() as session:  # the worker that it asks for is here already
            mark_taken(session, first_request_key(session, made.job_id), context.run_id)
    return made.job_id


def worked(
    job_id: int, context: dg.OpExecutionContext, our: Services
) -> Coroutine[object, object, JobView]:
    owner = f"{worker_name()}/{context.run_id}"
    return work_enrichment(
        job_id, registries=our.registries, database=our.database, clock=our.clock, owner=owner
    )
