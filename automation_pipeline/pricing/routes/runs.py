"""HTTP endpoints of pricing runs: read, act, reconcile; and what the other pricing routes share."""

from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query
from pydantic import Field
from starlette.responses import Response

from automation_pipeline.api.bodies import json_body
from automation_pipeline.api.errors import run_with_timeout, upstream_errors
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.idempotency import OncePerKey
from automation_pipeline.api.parameters import (
    ContextDep,
    DatabaseDep,
    IdInPath,
    Limit,
    Offset,
    ServicesDep,
    matching,
)
from automation_pipeline.api.responses import (
    Answer,
    Following,
    Listing,
    answer,
    following,
    listed,
    refusals,
)
from automation_pipeline.automation.models.schedules import KnownId
from automation_pipeline.core.json_model import LARGEST_ID, JsonModel
from automation_pipeline.pricing.checks import (
    checks_of,
    next_manual_name,
    reconcile_run,
    repair_run,
)
from automation_pipeline.pricing.models.rules import MAX_PROJECT_LENGTH
from automation_pipeline.pricing.models.runs import (
    LoggedMove,
    PricingRunState,
    RuleRun,
    RuleRunFilter,
    RuleTarget,
    RuleTrigger,
    RunResult,
    SkippedVariant,
    TargetState,
)
from automation_pipeline.pricing.models.transforms import Flag
from automation_pipeline.pricing.queries.runs import (
    get_run,
    list_runs,
    result_of,
    skipped_of,
    targets_of,
    transitions_of,
)
from automation_pipeline.pricing.rules.monitoring import ReconciliationReport, RuleCheck
from automation_pipeline.pricing.runs import (
    approve_run,
    cancel_run,
    queue_run,
    retry_run,
    roll_back_run,
)
from automation_pipeline.pricing.shop import is_shop_paused
from automation_pipeline.storage.database import Database

_PATTERN = rf"^[A-Za-z0-9._-]{{1,{MAX_PROJECT_LENGTH}}}$"
_RULE = (
    f"must be 1 to {MAX_PROJECT_LENGTH} of the letters A to Z, digits, dots, dashes and underscores"
)
ProjectName = Annotated[Annotated[str, Field(pattern=_PATTERN)], matching(_PATTERN, _RULE)]
ProjectInPath = Annotated[ProjectName, Path(examples=["default"])]
Project = Annotated[ProjectName | None, Query(description="Only entries of this project.")]
ItsProject = Annotated[ProjectName, Query(description="The project.")]
RuleId = Annotated[int | None, Query(ge=1, le=LARGEST_ID, description="Only entries of this rule.")]
RunId = Annotated[int | None, Query(ge=1, le=LARGEST_ID, description="Only entries of this run.")]
AfterId = Annotated[int, Query(ge=0, le=LARGEST_ID, description="Only entries after this id.")]


FORCED: Mapping[str, object] = {"force": True}


class Force(JsonModel):
    """`force` skips the cooldown of the rule."""

    force: Flag = False


MOST_TARGETS = 10_000
SOME: Mapping[str, object] = {"targetIds": ["118", "121"]}

TargetIds = Annotated[tuple[KnownId, ...], Field(min_length=1, max_length=MOST_TARGETS)]


class TargetInput(JsonModel):
    """Without `targetIds`, all eligible targets. `force` includes targets that are otherwise
    refused as not retryable or unsafe."""

    target_ids: TargetIds | None = None
    force: Flag = False


class RunAnswer(Answer[RuleRun]):
    """`shopPaused`: no price is written until the shop is resumed."""

    shopPaused: bool  # noqa: N815  its name in JSON


def shown_run(run: RuleRun, database: Database, *, status: int = 200) -> Response:
    """Answer with the run, and with whether its shop is paused. A request for a run of a paused shop is
    accepted; the run waits."""
    return answer(run, status=status, shopPaused=database.read(is_shop_paused, run.shop))


router = APIRouter(route_class=GuardedRoute, tags=["pricing runs"])
PATH = "/api/pricing/runs"
ONE = f"{PATH}/{{rule_run_id}}"


def _chosen(
    project: Project = None,
    rule_id: RuleId = None,
    status: Annotated[
        PricingRunState | None, Query(description="Only entries in this state.")
    ] = None,
    trigger: Annotated[
        RuleTrigger | None, Query(description="Only runs with this trigger.")
    ] = None,
) -> RuleRunFilter:
    return RuleRunFilter(project_id=project, rule_id=rule_id, status=status, trigger=trigger)


@router.get(PATH, response_model=Listing[RuleRun])
def list_(
    database: DatabaseDep,
    chosen: Annotated[RuleRunFilter, Depends(_chosen)],
    limit: Limit = 20,
    offset: Offset = 0,
) -> Response:
    """List the runs, newest first."""
    return listed(
        database.read(
            list_runs,
            chosen,
            limit,
            offset,
        ),
        limit,
        offset,
    )


@router.get(ONE, response_model=RunAnswer, responses=refusals(404))
def show(rule_run_id: IdInPath, database: DatabaseDep) -> Response:
    """Show one run, with the number of its targets in each state."""
    return shown_run(database.read(get_run, rule_run_id), database)


@router.get(f"{ONE}/targets", response_model=Following[RuleTarget], responses=refusals(404))
def targets(
    rule_run_id: IdInPath,
    database: DatabaseDep,
    status: Annotated[TargetState | None, Query(description="Only entries in this state.")] = None,
    after: AfterId = 0,
    limit: Limit = 100,
) -> Response:
    """List the targets of the run: prices before and after, and the outcome of each."""
    return following(
        database.read(targets_of, rule_run_id, status=status, limit=limit, after_id=after),
        limit,
    )


@router.get(f"{ONE}/skipped", response_model=Listing[SkippedVariant], responses=refusals(404))
def skipped(
    rule_run_id: IdInPath,
    database: DatabaseDep,
    reason: Annotated[
        str | None, Query(max_length=100, description="Only variants with this reason.")
    ] = None,
    limit: Limit = 100,
    offset: Offset = 0,
) -> Response:
    """List the selected variants that the rule skips or the guardrails block, each with the
    reason."""
    return listed(
        database.read(skipped_of, rule_run_id, reason=reason, limit=limit, offset=offset),
        limit,
        offset,
    )


@router.get(f"{ONE}/result", response_model=Answer[RunResult], responses=refusals(404))
def result(rule_run_id: IdInPath, database: DatabaseDep) -> Response:
    """Show the result of the run: the outcome of each target that was tried."""
    return answer(database.read(result_of, rule_run_id))


@router.get(f"{ONE}/log", response_model=Following[LoggedMove], responses=refusals(404))
def log(
    rule_run_id: IdInPath, database: DatabaseDep, after: AfterId = 0, limit: Limit = 100
) -> Response:
    """List every state change of the run and of its targets, oldest first."""
    return following(database.read(transitions_of, rule_run_id, limit, after), limit)


@router.post(f"{ONE}/approve", response_model=RunAnswer, responses=refusals(404, 409))
def approve(rule_run_id: IdInPath, context: ContextDep) -> Response:
    """Approve a planned run of a project that requires an approval. Neither its creator nor the
    author of its rule's version can approve it."""
    return shown_run(approve_run(rule_run_id, **context), context["database"])


@router.post(
    f"{ONE}/apply", status_code=202, response_model=RunAnswer, responses=refusals(404, 409)
)
def apply(
    rule_run_id: IdInPath,
    given: Annotated[Force, json_body(Force, "Invalid apply data", required=False, at_once=FORCED)],
    context: ContextDep,
    once: OncePerKey,
) -> Response:
    """Apply the previewed prices. A preview that is stale, or lacks a required approval, is a 409."""
    return once(
        lambda: shown_run(
            queue_run(rule_run_id, force=given.force, **context), context["database"], status=202
        )
    )


@router.post(
    f"{ONE}/retry", status_code=202, response_model=RunAnswer, responses=refusals(404, 409)
)
def retry(
    rule_run_id: IdInPath,
    request: Annotated[
        TargetInput,
        json_body(TargetInput, "Invalid retry data", required=False, some=SOME, forced=FORCED),
    ],
    context: ContextDep,
    once: OncePerKey,
) -> Response:
    """Retry failed targets: the given ones, or all retryable ones. `force` includes targets whose
    cause was removed."""
    return once(
        lambda: shown_run(
            retry_run(rule_run_id, target_ids=request.target_ids, force=request.force, **context),
            context["database"],
            status=202,
        )
    )


@router.post(
    f"{ONE}/rollback", status_code=202, response_model=RunAnswer, responses=refusals(404, 409)
)
def roll_back(
    rule_run_id: IdInPath,
    request: Annotated[
        TargetInput,
        json_body(TargetInput, "Invalid rollback data", required=False, some=SOME, forced=FORCED),
    ],
    context: ContextDep,
    once: OncePerKey,
) -> Response:
    """Roll back applied prices of the given targets, or of all. `force` overwrites prices that were
    changed since then."""
    return once(
        lambda: shown_run(
            roll_back_run(
                rule_run_id, target_ids=request.target_ids, force=request.force, **context
            ),
            context["database"],
            status=202,
        )
    )


@router.post(f"{ONE}/cancel", response_model=RunAnswer, responses=refusals(404, 409))
def cancel(rule_run_id: IdInPath, context: ContextDep) -> Response:
    """Cancel a run: no further target starts, applied prices stay. Safe to repeat."""
    return shown_run(cancel_run(rule_run_id, **context), context["database"])


@router.get(f"{ONE}/checks", response_model=Answer[list[RuleCheck]], responses=refusals(404))
def checks(rule_run_id: IdInPath, database: DatabaseDep) -> Response:
    """List the checks of the run's prices in the shop, by due time. A check without a report is not
    done yet."""
    with database.reading() as session:
        get_run(session, rule_run_id)
        found = checks_of(session, rule_run_id)
    return answer(found)


@router.post(
    f"{ONE}/reconcile",
    response_model=Answer[ReconciliationReport],
    responses=refusals(404, 409, 502),
)
def reconcile(rule_run_id: IdInPath, services: ServicesDep) -> Response:
    """Compare the applied prices with the shop now and store the report. No price is changed."""
    context = services.pricing_context
    with services.database.reading() as session:
        get_run(session, rule_run_id)
        name = next_manual_name(session, rule_run_id)
    with upstream_errors():
        work = reconcile_run(rule_run_id, context, name=name)
        report = run_with_timeout(work, services)
    return answer(report)


@router.post(
    f"{ONE}/repair", status_code=201, response_model=RunAnswer, responses=refusals(404, 409)
)
def repair(rule_run_id: IdInPath, context: ContextDep, once: OncePerKey) -> Response:
    """Plan a new run that restores the prices that the last check found changed. Apply it as any
    other run."""
    return once(
        lambda: shown_run(repair_run(rule_run_id, **context), context["database"], status=201)
    )
