"""Reconciliation: whether the shop still has the prices that a run applied."""

from fastapi import APIRouter
from starlette.responses import Response

from automation_pipeline.api.context import IdInPath, TheCaller, TheServices
from automation_pipeline.api.envelope import Answer, answer, refusals
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.in_time import done_in_time
from automation_pipeline.api.once import DoneOnce
from automation_pipeline.api.outside import asking_outside
from automation_pipeline.api.pricing_answers import shown_run
from automation_pipeline.api.schemas.pricing_runs import RunAnswer
from automation_pipeline.core.json_model import as_document
from automation_pipeline.pricing.domain.reconciliation import ReconciliationReport
from automation_pipeline.pricing.domain.rule_check import RuleCheck
from automation_pipeline.pricing.stages.reconcile_run import reconcile_run
from automation_pipeline.pricing.stages.repair_run import repair_run
from automation_pipeline.pricing.store.checks import checks_of, next_manual_name
from automation_pipeline.pricing.store.run_views import get_run

router = APIRouter(route_class=GuardedRoute, tags=["pricing runs"])
ONE = "/api/pricing/runs/{rule_run_id}"


@router.get(f"{ONE}/checks", response_model=Answer[list[RuleCheck]], responses=refusals(404))
def checks(rule_run_id: IdInPath, services: TheServices) -> Response:
    """The looks at the shop after the run, in the order in which they are due; one without a report is to come."""
    with services.database.reading() as session:
        get_run(session, rule_run_id)
        found = checks_of(session, rule_run_id)
    return answer([as_document(one) for one in found])


@router.post(f"{ONE}/reconcile", response_model=Answer[ReconciliationReport], responses=refusals(404, 409, 502))
def reconcile(rule_run_id: IdInPath, services: TheServices) -> Response:
    """Read the applied prices in the shop now, and tell those that differ. Nothing is changed; the report is kept."""
    front, database, clock = services.storefront, services.database, services.clock
    with database.reading() as session:
        get_run(session, rule_run_id)
        name = next_manual_name(session, rule_run_id)
    with asking_outside():
        work = reconcile_run(rule_run_id, front=front, database=database, clock=clock, name=name)
        report = done_in_time(work, services)
    return answer(as_document(report))


@router.post(f"{ONE}/repair", status_code=201, response_model=RunAnswer, responses=refusals(404, 409))
def repair(rule_run_id: IdInPath, caller: TheCaller, services: TheServices, once: DoneOnce) -> Response:
    """Plan a new run that restores what the last look at the shop found changed. Apply it as any other."""

    def work() -> Response:
        run = repair_run(rule_run_id, database=services.database, clock=services.clock, actor=caller.id)
        return shown_run(run, services, status=201)

    return once(work)
