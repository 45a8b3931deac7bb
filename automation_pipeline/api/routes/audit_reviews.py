"""People overrule what an audit found; the audit is scored anew."""

from collections.abc import Mapping

from fastapi import APIRouter
from starlette.responses import Response

from automation_pipeline.api.bodies import TheBody
from automation_pipeline.api.context import IdInPath, TheCaller, TheServices
from automation_pipeline.api.documented import takes
from automation_pipeline.api.envelope import Answer, answer, refusals
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.schemas.audit_work import OVERRULED, POINT_OVERRULED
from automation_pipeline.api.schemas.audits import AuditedStep
from automation_pipeline.audits.domain.review import PointReview, StepReview
from automation_pipeline.audits.stages import review_control_point as of_point
from automation_pipeline.audits.stages import review_step as of_step
from automation_pipeline.core.access import Caller

router = APIRouter(route_class=GuardedRoute, tags=["audits"])
STEP = "/api/audits/{audit_id}/steps/{position}"


@router.patch(
    f"{STEP}/review",
    response_model=Answer[AuditedStep],
    responses=refusals(404, 409),
    openapi_extra=takes(StepReview, overruled=OVERRULED),
)
def review_step(
    audit_id: IdInPath, position: IdInPath, body: TheBody, caller: TheCaller, services: TheServices
) -> Response:
    """Overrule a step of a completed audit. The caller is the reviewer; a machine may name another."""
    given = _signed(body, caller)
    return answer(of_step.review_step(audit_id, position, given, database=services.database))


@router.patch(
    f"{STEP}/control-points/{{point}}/review",
    response_model=Answer[AuditedStep],
    responses=refusals(404, 409),
    openapi_extra=takes(PointReview, overruled=POINT_OVERRULED),
)
def review_control_point(
    audit_id: IdInPath,
    position: IdInPath,
    point: IdInPath,
    body: TheBody,
    caller: TheCaller,
    services: TheServices,
) -> Response:
    """Overrule one control point of a completed audit. The caller is the reviewer; a machine may name another."""
    given = _signed(body, caller)
    return answer(of_point.review_control_point(audit_id, position, point, given, database=services.database))


def _signed(body: Mapping[str, object], caller: Caller) -> Mapping[str, object]:
    """What somebody else is said to have reviewed is believed of machines alone."""
    own = (caller.name or caller.id)[:200]
    return {**body, "reviewer": body.get("reviewer") or own} if caller.is_machine else {**body, "reviewer": own}
