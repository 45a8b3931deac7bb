"""What can be done with a run of a pricing rule. A worker does it: what is answered here is that it was asked for."""

from fastapi import APIRouter
from starlette.responses import Response

from automation_pipeline.api.bodies import OptionalBody
from automation_pipeline.api.context import IdInPath, TheCaller, TheServices
from automation_pipeline.api.documented import takes
from automation_pipeline.api.envelope import refusals
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.once import DoneOnce
from automation_pipeline.api.pricing_answers import shown_run
from automation_pipeline.api.schemas.pricing_rules import FORCED, Force
from automation_pipeline.api.schemas.pricing_runs import SOME, RunAnswer, TargetWish
from automation_pipeline.core.json_model import parse
from automation_pipeline.pricing.stages.approve_run import approve_run
from automation_pipeline.pricing.stages.cancel_run import cancel_run
from automation_pipeline.pricing.stages.queue_run import queue_run
from automation_pipeline.pricing.stages.retry_run import retry_run
from automation_pipeline.pricing.stages.roll_back_run import roll_back_run

router = APIRouter(route_class=GuardedRoute, tags=["pricing runs"])
ONE = "/api/pricing/runs/{rule_run_id}"


@router.post(f"{ONE}/approve", response_model=RunAnswer, responses=refusals(404, 409))
def approve(rule_run_id: IdInPath, caller: TheCaller, services: TheServices) -> Response:
    """Say yes to a planned run of a project whose guardrails ask for it. Neither its creator nor the author of
    the version of its rule can."""
    run = approve_run(rule_run_id, database=services.database, clock=services.clock, actor=caller.id)
    return shown_run(run, services)


@router.post(
    f"{ONE}/apply",
    status_code=202,
    response_model=RunAnswer,
    responses=refusals(404, 409),
    openapi_extra=takes(Force, required=False, at_once=FORCED),
)
def apply(
    rule_run_id: IdInPath, body: OptionalBody, caller: TheCaller, services: TheServices, once: DoneOnce
) -> Response:
    """Apply the prices that were previewed: not of a preview that is stale, or not approved where it must be."""
    force = parse(Force, body, "Invalid apply data").force

    def work() -> Response:
        run = queue_run(rule_run_id, database=services.database, clock=services.clock, actor=caller.id, force=force)
        return shown_run(run, services, status=202)

    return once(work)


@router.post(
    f"{ONE}/retry",
    status_code=202,
    response_model=RunAnswer,
    responses=refusals(404, 409),
    openapi_extra=takes(TargetWish, required=False, some=SOME, forced=FORCED),
)
def retry(
    rule_run_id: IdInPath, body: OptionalBody, caller: TheCaller, services: TheServices, once: DoneOnce
) -> Response:
    """Try failed targets again: those named, or all that are worth it. `force` takes the hopeless too, whose cause was
    removed."""
    wish = parse(TargetWish, body, "Invalid retry data")

    def work() -> Response:
        run = retry_run(
            rule_run_id,
            database=services.database,
            clock=services.clock,
            actor=caller.id,
            target_ids=wish.target_ids,
            force=wish.force,
        )
        return shown_run(run, services, status=202)

    return once(work)


@router.post(
    f"{ONE}/rollback",
    status_code=202,
    response_model=RunAnswer,
    responses=refusals(404, 409),
    openapi_extra=takes(TargetWish, required=False, some=SOME, forced=FORCED),
)
def roll_back(
    rule_run_id: IdInPath, body: OptionalBody, caller: TheCaller, services: TheServices, once: DoneOnce
) -> Response:
    """Take applied prices back: of the targets named, or of all. `force` overwrites what somebody has changed since."""
    wish = parse(TargetWish, body, "Invalid rollback data")

    def work() -> Response:
        run = roll_back_run(
            rule_run_id,
            database=services.database,
            clock=services.clock,
            actor=caller.id,
            target_ids=wish.target_ids,
            force=wish.force,
        )
        return shown_run(run, services, status=202)

    return once(work)


@router.post(f"{ONE}/cancel", response_model=RunAnswer, responses=refusals(404, 409))
def cancel(rule_run_id: IdInPath, caller: TheCaller, services: TheServices) -> Response:
    """Stop a run: what was not begun is not begun any more, what was applied stays. Safe to repeat."""
    run = cancel_run(rule_run_id, database=services.database, clock=services.clock, actor=caller.id)
    return shown_run(run, services)
