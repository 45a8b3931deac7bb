"""Runs of pricing rules, looked at: what each found, what it did to which variant, and how it came to that."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from automation_pipeline.api.context import IdInPath, Limit, Offset, TheServices
from automation_pipeline.api.envelope import Answer, Following, Listing, answer, following, listed, refusals
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.pricing_answers import shown_run
from automation_pipeline.api.pricing_queries import AfterId, Project, RuleId
from automation_pipeline.api.schemas.pricing_runs import RunAnswer
from automation_pipeline.core.json_model import as_document
from automation_pipeline.pricing.domain.rule_run import RuleRun, RuleTarget, RuleTrigger, SkippedVariant
from automation_pipeline.pricing.domain.run_filter import RunFilter
from automation_pipeline.pricing.domain.run_log import LoggedMove
from automation_pipeline.pricing.domain.run_result import RunResult
from automation_pipeline.pricing.domain.states import RunState, TargetState
from automation_pipeline.pricing.store.run_views import (
    get_run,
    list_runs,
    result_of,
    skipped_of,
    targets_of,
    transitions_of,
)

router = APIRouter(route_class=GuardedRoute, tags=["pricing runs"])
PATH = "/api/pricing/runs"
ONE = f"{PATH}/{{rule_run_id}}"


@dataclass(frozen=True)
class RunChoice:
    """Which runs are wanted."""

    project: Project = None
    rule_id: RuleId = None
    status: Annotated[RunState | None, Query(description="Only those that stand so.")] = None
    trigger: Annotated[RuleTrigger | None, Query(description="Only those made by this.")] = None


@router.get(PATH, response_model=Listing[RuleRun])
def list_(
    services: TheServices, chosen: Annotated[RunChoice, Depends()], limit: Limit = 20, offset: Offset = 0
) -> Response:
    """List the runs, newest first."""
    wanted = RunFilter(project_id=chosen.project, rule_id=chosen.rule_id, status=chosen.status, trigger=chosen.trigger)
    with services.database.reading() as session:
        found = list_runs(session, wanted, limit, offset)
    return listed(found, limit, offset)


@router.get(ONE, response_model=RunAnswer, responses=refusals(404))
def show(rule_run_id: IdInPath, services: TheServices) -> Response:
    """Show one run: how it stands, and how many of its targets stand where."""
    with services.database.reading() as session:
        run = get_run(session, rule_run_id)
    return shown_run(run, services)


@router.get(f"{ONE}/targets", response_model=Following[RuleTarget], responses=refusals(404))
def targets(
    rule_run_id: IdInPath,
    services: TheServices,
    status: Annotated[TargetState | None, Query(description="Only those that stand so.")] = None,
    after: AfterId = 0,
    limit: Limit = 100,
) -> Response:
    """What the run changes, variant by variant: prices before and after, and what became of each."""
    with services.database.reading() as session:
        found = targets_of(session, rule_run_id, status=status, limit=limit, after_id=after)
    return following(found, limit)


@router.get(f"{ONE}/skipped", response_model=Listing[SkippedVariant], responses=refusals(404))
def skipped(
    rule_run_id: IdInPath,
    services: TheServices,
    reason: Annotated[str | None, Query(max_length=100, description="Only those left alone for this.")] = None,
    limit: Limit = 100,
    offset: Offset = 0,
) -> Response:
    """The variants that the rule picks and leaves alone, or that the guardrails block, each with why."""
    with services.database.reading() as session:
        found = skipped_of(session, rule_run_id, reason=reason, limit=limit, offset=offset)
    return listed(found, limit, offset)


@router.get(f"{ONE}/result", response_model=Answer[RunResult], responses=refusals(404))
def result(rule_run_id: IdInPath, services: TheServices) -> Response:
    """How the run went, as a report of what was tried."""
    with services.database.reading() as session:
        return answer(as_document(result_of(session, rule_run_id)))


@router.get(f"{ONE}/log", response_model=Following[LoggedMove], responses=refusals(404))
def log(rule_run_id: IdInPath, services: TheServices, after: AfterId = 0, limit: Limit = 100) -> Response:
    """Every move of the run and of its targets: from where to where, by whom, why and when. Oldest first."""
    with services.database.reading() as session:
        found = transitions_of(session, rule_run_id, limit, after)
    return following(found, limit)
