"""Routes of backfills."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from automation_pipeline.api.bodies import json_body
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.parameters import (
    IdInPath,
    Limit,
    Offset,
    OneOrg,
    OneSchedule,
    TheCaller,
    TheServices,
)
from automation_pipeline.api.responses import Answer, Listing, answer, listed, refusals
from automation_pipeline.api.scopes import TheWithin
from automation_pipeline.org_jobs.fires import cancel_backfill
from automation_pipeline.org_jobs.models.states import BatchState
from automation_pipeline.org_jobs.queries.fires import get_backfill, list_backfills
from automation_pipeline.org_jobs.routes.organisations import MISTAKEN, ReasonInput
from automation_pipeline.org_jobs.rules.due import Backfill

router = APIRouter(route_class=GuardedRoute, tags=["organisations' backfills"])
PATH = "/api/org-backfills"
ONE = f"{PATH}/{{batch_id}}"


@dataclass(frozen=True)
class BackfillChoice:
    """The filters of backfills."""

    org: OneOrg = None
    schedule: OneSchedule = None
    status: Annotated[BatchState | None, Query(description="Only backfills with this status.")] = (
        None
    )


@router.get(PATH, response_model=Listing[Backfill])
def list_(
    within: TheWithin,
    services: TheServices,
    chosen: Annotated[BackfillChoice, Depends()],
    limit: Limit = 50,
    offset: Offset = 0,
) -> Response:
    """List the backfills, newest first, each with the number of its jobs per status."""
    return listed(
        services.database.read(
            list_backfills,
            within,
            org_id=chosen.org,
            schedule_id=chosen.schedule,
            status=chosen.status,
            limit=limit,
            offset=offset,
        ),
        limit,
        offset,
    )


@router.get(ONE, response_model=Answer[Backfill], responses=refusals(404))
def show(batch_id: IdInPath, within: TheWithin, services: TheServices) -> Response:
    """Show one backfill. Its jobs: `/api/org-jobs?batch=`."""
    return answer(services.database.read(get_backfill, batch_id, within))


@router.post(f"{ONE}/cancel", response_model=Answer[Backfill], responses=refusals(404, 409))
def cancel(
    batch_id: IdInPath,
    given: Annotated[
        ReasonInput,
        json_body(ReasonInput, "Invalid cancel data", required=False, mistaken=MISTAKEN),
    ],
    within: TheWithin,
    caller: TheCaller,
    services: TheServices,
) -> Response:
    """Cancel its jobs that have not started, and ask running jobs to stop. Safe to repeat."""
    return answer(
        cancel_backfill(
            batch_id,
            within=within,
            database=services.database,
            clock=services.clock,
            actor=caller.id,
            reason=given.reason,
        )
    )
