"""HTTP endpoints of dead letters."""

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.responses import Response

from automation_pipeline.api.bodies import OptionalBody
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.idempotency import DoneOnce
from automation_pipeline.api.openapi import takes
from automation_pipeline.api.parameters import TheCaller, TheServices
from automation_pipeline.api.responses import Answer, answer, refusals
from automation_pipeline.core.json_model import JsonModel, as_document, parse
from automation_pipeline.pricing.dead_letters import (
    acknowledge_dead_letters,
    report_dead_letters,
    retry_dead_letters,
)
from automation_pipeline.pricing.models.history import DeadLetterReport
from automation_pipeline.pricing.models.rules import DEFAULT_PROJECT
from automation_pipeline.pricing.models.transforms import Flag
from automation_pipeline.pricing.routes.responses import FORCED, SOME, ItsProject, TargetIds


class LettersRetryInput(JsonModel):
    """With `force`, those too that would fail again unless their cause was removed."""

    force: Flag = False


class AcknowledgeInput(JsonModel):
    """Without `targetIds`, all of the project's."""

    target_ids: TargetIds | None = None


class RunSkipped(BaseModel):
    runId: str  # noqa: N815  its name in JSON
    why: str


class LettersRetried(BaseModel):
    runIds: list[str] = Field(examples=[["12", "15"]])  # noqa: N815  its name in JSON
    skipped: list[RunSkipped] = Field(description="The runs that cannot be retried now.")


class Acknowledged(BaseModel):
    acknowledged: int


router = APIRouter(route_class=GuardedRoute, tags=["pricing dead letters"])
PATH = "/api/pricing/dead-letters"


@router.get(PATH, response_model=Answer[DeadLetterReport])
def report(services: TheServices, project: ItsProject = DEFAULT_PROJECT) -> Response:
    """What failed in a project and nobody has acknowledged: how much of what kind, and what to do
    about it."""
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
        return answer(
            {"runIds": [str(run_id) for run_id in retried.runs], "skipped": skipped}, status=202
        )

    return once(work)


@router.post(
    f"{PATH}/acknowledge",
    response_model=Answer[Acknowledged],
    openapi_extra=takes(AcknowledgeInput, required=False, some=SOME),
)
def acknowledge(
    body: OptionalBody,
    caller: TheCaller,
    services: TheServices,
    project: ItsProject = DEFAULT_PROJECT,
) -> Response:
    """Say that nothing more is to be done about these, or about all: they count no more. Safe to
    repeat."""
    target_ids = parse(AcknowledgeInput, body, "Invalid acknowledgement").target_ids
    count = acknowledge_dead_letters(
        project, target_ids, database=services.database, clock=services.clock, actor=caller.id
    )
    return answer({"acknowledged": count})
