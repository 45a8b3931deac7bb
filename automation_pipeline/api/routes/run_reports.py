"""Everything that the page of a run tells."""

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from automation_pipeline.api.context import IdInPath, TheReach, TheServices
from automation_pipeline.api.envelope import Answer, answer, refusals
from automation_pipeline.api.errors import AuthorizationError
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.automation.domain.run_report_document import report_document
from automation_pipeline.automation.store.run_report import run_report

router = APIRouter(route_class=GuardedRoute, tags=["runs"])


@router.get(
    "/api/automation/runs/{run_id}/report",
    response_model=Answer[dict[str, Any]],  # Any: JSON
    responses=refusals(404),
)
def report(run_id: IdInPath, reach: TheReach, services: TheServices) -> Response:
    """What became of a run, down to the quotations of its audits: `automation runs report` makes a page of it."""
    if not reach.is_whole:
        raise AuthorizationError("The report shows every fiche of the run: it needs the scope ALL")
    with services.database.reading() as session:
        return answer(report_document(run_report(session, run_id)))
