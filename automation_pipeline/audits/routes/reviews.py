"""HTTP endpoints of reviews: a person overrules what an audit found."""

from collections.abc import Mapping

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.responses import Response

from automation_pipeline.api.bodies import TheBody
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.openapi import takes
from automation_pipeline.api.parameters import IdInPath, TheCaller, TheServices
from automation_pipeline.api.responses import Answer, answer, refusals
from automation_pipeline.audits import reviews as use_cases
from automation_pipeline.audits.models.findings import Conforme, Niveau
from automation_pipeline.audits.routes.audits import Json
from automation_pipeline.audits.rules.reviews import PointReview, StepReview
from automation_pipeline.core.access import Caller

STEP_REVIEW_EXAMPLE: Mapping[str, object] = {
    "conforme": "CONFORME",
    "score": 5,
    "reason": "It is said at 02:10",
}


POINT_REVIEW_EXAMPLE: Mapping[str, object] = {"statut": "PRESENT", "reason": "It is said at 02:10"}


class AuditedStep(BaseModel):
    """The step as it is in the audit's result."""

    traite: bool
    conforme: Conforme
    score: int
    niveau_conformite: Niveau
    commentaire_global: str
    minutages: list[str]
    mots_cles_trouves: list[str]
    erreurs_transcription_tolerees: int
    error: str | None
    points_controle: list[Json]
    step_metadata: Json
    usage: Json
    human_review: list[Json]
    rerun_history: list[Json]


router = APIRouter(route_class=GuardedRoute, tags=["audits"])
STEP = "/api/audits/{audit_id}/steps/{position}"


@router.patch(
    f"{STEP}/review",
    response_model=Answer[AuditedStep],
    responses=refusals(404, 409),
    openapi_extra=takes(StepReview, overruled=STEP_REVIEW_EXAMPLE),
)
def review_step(
    audit_id: IdInPath, position: IdInPath, body: TheBody, caller: TheCaller, services: TheServices
) -> Response:
    """Overrule a step of a completed audit. The caller is the reviewer; a machine may name
    another."""
    given = _with_reviewer(body, caller)
    return answer(use_cases.review_step(audit_id, position, given, database=services.database))


@router.patch(
    f"{STEP}/control-points/{{point}}/review",
    response_model=Answer[AuditedStep],
    responses=refusals(404, 409),
    openapi_extra=takes(PointReview, overruled=POINT_REVIEW_EXAMPLE),
)
def review_control_point(
    audit_id: IdInPath,
    position: IdInPath,
    point: IdInPath,
    body: TheBody,
    caller: TheCaller,
    services: TheServices,
) -> Response:
    """Overrule one control point of a completed audit. The caller is the reviewer; a machine may
    name another."""
    given = _with_reviewer(body, caller)
    return answer(
        use_cases.review_control_point(audit_id, position, point, given, database=services.database)
    )


def _with_reviewer(body: Mapping[str, object], caller: Caller) -> Mapping[str, object]:
    """What somebody else is said to have reviewed is believed of machines alone."""
    own = (caller.name or caller.id)[:200]
    return (
        {**body, "reviewer": body.get("reviewer") or own}
        if caller.is_machine
        else {**body, "reviewer": own}
    )
