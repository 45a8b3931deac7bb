"""Enrichments as Dagster knows them: which job a run works on, and what people read about it there."""

from collections.abc import Coroutine
from dataclasses import dataclass

import dagster as dg

from automation_pipeline.bootstrap import Services
from automation_pipeline.core.correlation import correlation_id
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.enrichment.domain.configured import check_configured, is_configured
from automation_pipeline.enrichment.domain.views import JobView
from automation_pipeline.enrichment.domain.vocabulary import DEFAULT_TENANT, Asked
from automation_pipeline.enrichment.stages.request_enrichment import request_enrichment
from automation_pipeline.enrichment.stages.work_enrichment import work_enrichment
from automation_pipeline.enrichment.store.jobs import first_request_key
from automation_pipeline.enrichment.store.requests import Asking
from automation_pipeline.orchestration.config_ids import check_ids
from automation_pipeline.orchestration.heartbeat import worker_name
from automation_pipeline.storage.run_requests import mark_taken

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
            raise InvalidInputError("Give job_id, for a job that is there, or siren, to ask for one: one of them.")
        if self.force and self.siren is None:
            raise InvalidInputError("force is for a company that is asked for: give siren with it.")


def has_registries(services: Services) -> bool:
    return is_configured(services.registries.sources)


def job_to_work(launch: EnrichmentLaunch, context: dg.OpExecutionContext, our: Services) -> int | None:
    """None: what is known of the company is fresh. A retry of the step finds what was asked for before."""
    check_configured(our.registries.sources)
    if launch.job_id is not None:
        return launch.job_id
    asking = Asking(
        tenant_id=DEFAULT_TENANT,
        correlation_id=correlation_id() or context.run_id,
        actor=_ACTOR,
        idempotency_key=f"dagster:{context.run_id}",
    )
    knobs, given = our.registries.knobs, {"siren": launch.siren}
    made = request_enrichment(given, asking, knobs=knobs, database=our.database, clock=our.clock, force=launch.force)
    if made.asked is Asked.ENQUEUED and made.job_id is not None:
        with our.database.transaction() as session:  # the worker that it asks for is here already
            mark_taken(session, first_request_key(session, made.job_id), context.run_id)
    return made.job_id


def worked(job_id: int, context: dg.OpExecutionContext, our: Services) -> Coroutine[object, object, JobView]:
    owner = f"{worker_name()}/{context.run_id}"
    return work_enrichment(job_id, registries=our.registries, database=our.database, clock=our.clock, owner=owner)
