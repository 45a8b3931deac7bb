"""HTTP endpoints of pricing rules and of a project's guardrails."""

from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from automation_pipeline.api.bodies import JsonObject, json_body
from automation_pipeline.api.errors import AuthorizationError, run_with_timeout, upstream_errors
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.idempotency import OncePerKey
from automation_pipeline.api.parameters import (
    CallerDep,
    ContextDep,
    DatabaseDep,
    IdInPath,
    Limit,
    Offset,
    ServicesDep,
)
from automation_pipeline.api.responses import (
    Answer,
    Done,
    Listing,
    answer,
    answer_with,
    listed,
    refusals,
)
from automation_pipeline.core.access import Action, Caller, Permission
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.core.json_model import as_document
from automation_pipeline.pricing.models.rules import (
    DEFAULT_PROJECT,
    Policy,
    PricingRule,
    RuleInput,
    RuleVersion,
)
from automation_pipeline.pricing.models.runs import RuleTrigger
from automation_pipeline.pricing.planning import preview_rule
from automation_pipeline.pricing.pricing_rules import (
    create_rule,
    delete_rule,
    get_rule,
    list_rules,
    policy_of,
    put_policy,
    remove_policy,
    update_rule,
    versions_of,
)
from automation_pipeline.pricing.queries.runs import get_run
from automation_pipeline.pricing.routes.runs import (
    FORCED,
    Force,
    ItsProject,
    Project,
    ProjectInPath,
    RunAnswer,
    shown_run,
)
from automation_pipeline.pricing.runs import request_rule_run

SALE: Mapping[str, object] = {
    "name": "Spring sale",
    "selector": {"and": [{"tag": ["spring"]}, {"price": {"gte": 1000, "currency": "EUR"}}]},
    "transform": {
        "op": "percent",
        "value": -10,
        "floor": 900,
        "ending": ".99",
        "compareAt": "before",
    },
    "currency": "EUR",
    "scheduleAt": "2027-03-20T07:00:00Z",
    "endsAt": "2027-03-27T07:00:00Z",
}
CHANGE: Mapping[str, object] = {"enabled": False, "endsAt": None}
GUARDRAILS: Mapping[str, object] = {
    "maxPctDelta": 0.15,
    "floor": 500,
    "currency": "EUR",
    "dailyChangeBudgetPct": 0.25,
}


class PolicyShown(Policy):
    """A policy with all its fields."""


_TIMES = ("scheduleAt", "endsAt")


def may_change_prices(caller: Caller) -> bool:
    return caller.reach(Permission.PRICING_RUNS, Action.WRITE) is not None


def check_times(caller: Caller, *rules: Mapping[str, object]) -> None:
    """Only callers who may change prices may set a time, because the rule then changes prices
    automatically."""
    if any(
        rule.get(name) is not None for rule in rules for name in _TIMES
    ) and not may_change_prices(caller):
        raise AuthorizationError(
            "A rule with scheduleAt or endsAt changes prices automatically: it requires pricing.runs.write"
        )


router = APIRouter(route_class=GuardedRoute, tags=["pricing rules"])
PATH = "/api/pricing/rules"
ONE = f"{PATH}/{{rule_id}}"


@router.get(PATH, response_model=Listing[PricingRule])
def list_(
    database: DatabaseDep,
    *,
    project: Project = None,
    enabled: Annotated[
        bool | None, Query(description="Only enabled rules, or only disabled ones.")
    ] = None,
    q: Annotated[str | None, Query(max_length=255, description="A part of the name.")] = None,
    limit: Limit = 50,
    offset: Offset = 0,
) -> Response:
    """List the rules, newest first."""
    return listed(
        database.read(
            list_rules, project_id=project, enabled=enabled, q=q, limit=limit, offset=offset
        ),
        limit,
        offset,
    )


@router.post(PATH, status_code=201, response_model=Answer[PricingRule], responses=refusals(409))
def create(
    body: Annotated[JsonObject, json_body(RuleInput, spring_sale=SALE)],
    context: ContextDep,
    caller: CallerDep,
    once: OncePerKey,
    project: ItsProject = DEFAULT_PROJECT,
) -> Response:
    """Store a new rule. It runs at `scheduleAt`, and its applied prices are rolled back at
    `endsAt`. Both fields also require `pricing.runs.write`, because such a rule changes prices
    automatically."""
    check_times(caller, body)
    return once(lambda: answer(create_rule(body, project_id=project, **context), status=201))


@router.get(ONE, response_model=Answer[PricingRule], responses=refusals(404))
def show(rule_id: IdInPath, database: DatabaseDep) -> Response:
    """Show one rule."""
    return answer(database.read(get_rule, rule_id))


@router.patch(ONE, response_model=Answer[PricingRule], responses=refusals(404, 409))
def update(
    rule_id: IdInPath,
    body: Annotated[JsonObject, json_body(RuleInput, partial=True, stop=CHANGE)],
    context: ContextDep,
    caller: CallerDep,
    database: DatabaseDep,
) -> Response:
    """Change the given fields. Null clears a field; selector and transform are replaced as a whole.
    A change that affects prices creates a new version and makes previews of older versions stale.
    Only callers who may change prices may set a time."""
    if not may_change_prices(caller):
        check_times(caller, body, as_document(database.read(get_rule, rule_id)))
    return answer(update_rule(rule_id, body, **context))


@router.delete(ONE, response_model=Done, responses=refusals(404, 409))
def delete(rule_id: IdInPath, context: ContextDep) -> Response:
    """Delete a rule. Its runs and versions stay."""
    delete_rule(rule_id, **context)
    return answer_with(message="Pricing rule deleted")


@router.get(f"{ONE}/versions", response_model=Listing[RuleVersion], responses=refusals(404))
def versions(
    rule_id: IdInPath, database: DatabaseDep, limit: Limit = 50, offset: Offset = 0
) -> Response:
    """List the versions of a rule, newest first, also of a deleted one."""
    return listed(database.read(versions_of, rule_id, limit, offset), limit, offset)


@router.post(
    f"{ONE}/preview", status_code=201, response_model=RunAnswer, responses=refusals(404, 409, 502)
)
def preview(rule_id: IdInPath, caller: CallerDep, services: ServicesDep) -> Response:
    """Read the shop's catalogue now and plan a run without applying it, also of a disabled rule.

    A catalogue that takes longer than `API_TIMEOUT_SECONDS` is a 504: use the command line, which
    has no such limit, or request a run with `apply`, which a worker plans."""
    work = preview_rule(rule_id, services.pricing_context, actor=caller.id, trigger=RuleTrigger.API)
    with upstream_errors():
        run = run_with_timeout(work, services)
    return shown_run(run, services.database, status=201)


@router.post(
    f"{ONE}/apply", status_code=202, response_model=RunAnswer, responses=refusals(404, 409)
)
def apply(
    rule_id: IdInPath,
    given: Annotated[Force, json_body(Force, "Invalid apply data", required=False, at_once=FORCED)],
    context: ContextDep,
    services: ServicesDep,
    once: OncePerKey,
) -> Response:
    """Request a run: a worker plans and applies it. A run that needs an approval stays a preview.

    Without `force`, a rule in its cooldown is a 409.
    """
    return once(
        lambda: shown_run(
            services.database.read(
                get_run,
                request_rule_run(
                    rule_id,
                    shop=services.storefront.name,
                    trigger=RuleTrigger.API,
                    force=given.force,
                    **context,
                ),
            ),
            context["database"],
            status=202,
        )
    )


policies_router = APIRouter(route_class=GuardedRoute, tags=["pricing policies"])
POLICY = "/api/pricing/policies/{project}"


@policies_router.get(
    POLICY, name="show", response_model=Answer[PolicyShown], responses=refusals(404)
)
def show_policy(project: ProjectInPath, database: DatabaseDep) -> Response:
    """Show a project's guardrails. Without guardrails, its runs need no approval."""
    policy = database.read(policy_of, project)
    if policy is None:
        raise NotFoundError(f"Project {project} has no pricing policy.")
    return answer(policy)


@policies_router.put(POLICY, response_model=Answer[PolicyShown])
def put(
    project: ProjectInPath,
    body: Annotated[JsonObject, json_body(Policy, careful=GUARDRAILS)],
    context: ContextDep,
) -> Response:
    """Replace a project's guardrails. Without `autoApply`, a second person must approve each run."""
    return answer(put_policy(project, body, **context))


@policies_router.delete(POLICY, response_model=Done, responses=refusals(404))
def remove(project: ProjectInPath, context: ContextDep) -> Response:
    """Remove a project's guardrails."""
    remove_policy(project, **context)
    return answer_with(message="Pricing policy removed")
