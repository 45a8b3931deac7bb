"""HTTP endpoints of a project's guardrails."""

from fastapi import APIRouter
from starlette.responses import Response

from automation_pipeline.api.bodies import TheBody
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.openapi import takes
from automation_pipeline.api.parameters import TheCaller, TheServices
from automation_pipeline.api.responses import Answer, Done, answer, refusals, said
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.core.json_model import as_document
from automation_pipeline.pricing.models.rules import Policy
from automation_pipeline.pricing.pricing_rules import put_policy, remove_policy
from automation_pipeline.pricing.queries.rules import policy_of
from automation_pipeline.pricing.routes.responses import GUARDRAILS, PolicyShown, ProjectInPath

router = APIRouter(route_class=GuardedRoute, tags=["pricing policies"])
ONE = "/api/pricing/policies/{project}"


@router.get(ONE, response_model=Answer[PolicyShown], responses=refusals(404))
def show(project: ProjectInPath, services: TheServices) -> Response:
    """Show a project's guardrails. Without any, its runs need no approval either."""
    with services.database.reading() as session:
        policy = policy_of(session, project)
    if policy is None:
        raise NotFoundError(f"Project {project} has no pricing policy.")
    return answer(as_document(policy))


@router.put(
    ONE, response_model=Answer[PolicyShown], openapi_extra=takes(Policy, careful=GUARDRAILS)
)
def put(
    project: ProjectInPath, body: TheBody, caller: TheCaller, services: TheServices
) -> Response:
    """Give a project its guardrails, in place of those it had. Unless they say `autoApply`, a
    second person must approve each run."""
    policy = put_policy(
        project, body, database=services.database, clock=services.clock, actor=caller.id
    )
    return answer(as_document(policy))


@router.delete(ONE, response_model=Done, responses=refusals(404))
def remove(project: ProjectInPath, caller: TheCaller, services: TheServices) -> Response:
    """Take a project's guardrails away."""
    remove_policy(project, database=services.database, clock=services.clock, actor=caller.id)
    return said(message="Pricing policy removed")
