"""HTTP endpoints of price changes and alerts."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.parameters import Limit, Offset, TheServices
from automation_pipeline.api.responses import Following, Listing, following, listed
from automation_pipeline.pricing.models.history import PriceChange, PriceChangeFilter, PricingAlert
from automation_pipeline.pricing.queries.history import list_alerts, price_changes
from automation_pipeline.pricing.routes.responses import AfterId, Project, RunId

router = APIRouter(route_class=GuardedRoute, tags=["pricing history"])


@dataclass(frozen=True)
class ChangeChoice:
    """Which prices are wanted."""

    project: Project = None
    variant: Annotated[str | None, Query(max_length=255, description="Only of this variant.")] = (
        None
    )
    run_id: RunId = None


@router.get("/api/pricing/price-changes", response_model=Following[PriceChange])
def changes(
    services: TheServices,
    chosen: Annotated[ChangeChoice, Depends()],
    after: AfterId = 0,
    limit: Limit = 100,
) -> Response:
    """Every price that was written in the shop, by runs and by their rollbacks, in the order of the
    writing."""
    wanted = PriceChangeFilter(
        project_id=chosen.project, variant_id=chosen.variant, run_id=chosen.run_id
    )
    with services.database.reading() as session:
        found = price_changes(session, wanted, limit, after)
    return following(found, limit)


@router.get("/api/pricing/alerts", response_model=Listing[PricingAlert])
def alerts(
    services: TheServices, project: Project = None, limit: Limit = 50, offset: Offset = 0
) -> Response:
    """List the alerts, newest first: why somebody was called, and what became of the message."""
    with services.database.reading() as session:
        found = list_alerts(session, project, limit, offset)
    return listed(found, limit, offset)
