"""Pricing's dead letters: the price changes that failed, until they are tried again or acknowledged."""

from fastapi import APIRouter
from starlette.responses import Response

from automation_pipeline.api.bodies import OptionalBody
from automation_pipeline.api.context import TheCaller, TheServices
from automation_pipeline.api.documented import takes
from automation_pipeline.api.envelope import Answer, answer, refusals
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.once import DoneOnce
from automation_pipeline.api.pricing_queries import ItsProject
from automation_pipeline.api.schemas.pricing_dead_letters import (
    Acknowledged,
    AcknowledgeInput,
    LettersRetried,
    LettersRetryInput,
)
from automation_pipeline.api.schemas.pricing_rules import FORCED
from automation_pipeline.api.schemas.pricing_runs import SOME
from automation_pipeline.core.json_model import as_document, parse
from automation_pipeline.pricing.domain.dead_letters import DeadLetterReport
from automation_pipeline.pricing.domain.pricing_rule import DEFAULT_PROJECT
from automation_pipeline.pricing.stages.acknowledge_dead_letters import acknowledge_dead_letters
from automation_pipeline.pricing.stages.report_dead_letters import report_dead_letters
from automation_pipeline.pricing.stages.retry_dead_letters import retry_dead_letters

router = APIRouter(route_class=GuardedRoute, tags=["pricing dead letters"])
PATH = "/api/pricing/dead-letters"


@router.get(PATH, response_model=Answer[DeadLetterReport])
def report(services: TheServices, project: ItsProject = DEFAULT_PROJECT) -> Response:
    """What failed in a project and nobody has acknowledged: how much of what kind, and what to do about it."""
    told = report_dead_letters(project, database=services.database, clock=services.clock)
    return answer(as_document(told))


@router.post(
    f"{PATH}/retry",
    status_code=202,
    response_model=Answer[LettersRetried],
    responses=refusals(409),
    openapi_extra=takes(LettersRetryInput, required=False, forced=FORCED),
)
def retry(
    body: OptionalBody,
    caller: TheCaller,
    services: TheServices,
    once: DoneOnce,
    project: ItsProject = DEFAULT_PROJECT,
) -> Response:
    """Ask for everything in a project that is worth it to be tried again, run by run."""
    force = parse(LettersRetryInput, body, "Invalid retry data").force

    def work() -> Response:
        retried = retry_dead_letters(
            project, database=services.database, clock=services.clock, actor=caller.id, force=force
        )
        skipped = [{"runId": str(run_id), "why": why} for run_id, why in retried.skipped.items()]
        return answer({"runIds": [str(run_id) for run_id in retried.runs], "skipped": skipped}, status=202)

    return once(work)


@router.post(
    f"{PATH}/acknowledge",
    response_model=Answer[Acknowledged],
    openapi_extra=takes(AcknowledgeInput, required=False, some=SOME),
)
def acknowledge(
    body: OptionalBody, caller: TheCaller, services: TheServices, project: ItsProject = DEFAULT_PROJECT
) -> Response:
    """Say that nothing more is to be done about these, or about all: they count no more. Safe to repeat."""
    target_ids = parse(AcknowledgeInput, body, "Invalid acknowledgement").target_ids
    count = acknowledge_dead_letters(
        project, target_ids, database=services.database, clock=services.clock, actor=caller.id
    )
    return answer({"acknowledged": count})
