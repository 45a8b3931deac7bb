"""HTTP endpoints of companies and sources."""

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import Response

from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.parameters import TheServices
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.enrichment.queries.views import find_company, source_views
from automation_pipeline.enrichment.routes.contract import (
    CONTRACT_REFUSALS,
    CompanyShown,
    SourcesShown,
    by_contract,
    contract_document,
    contract_response,
)

router = APIRouter(route_class=GuardedRoute, tags=["companies"], responses=CONTRACT_REFUSALS)

SirenInPath = Annotated[str, Path(pattern=r"^[0-9]{9}$", examples=["552032534"])]


@router.get("/v1/companies/{siren}", response_model=CompanyShown, responses=by_contract(404))
def show(siren: SirenInPath, services: TheServices) -> Response:
    """Show a company as it was last consolidated, with the source of each field. Nobody is asked
    for it."""
    with services.database.reading() as session:
        company = find_company(session, siren)
    if company is None:
        raise NotFoundError(f"Nothing is known of company {siren}: POST /v1/requests asks for it.")
    return contract_response(contract_document(company))


@router.get("/v1/sources", response_model=SourcesShown)
def sources(services: TheServices) -> Response:
    """Show how the sources stand: which are configured, which rest and until when, and their calls
    of today (UTC)."""
    configured = services.registries.sources
    with services.database.reading() as session:
        standing = source_views(session, services.clock.now())
    told = [
        {
            **contract_document(one),
            "is_configured": one.source_api in configured,
            "calls_a_day": configured[one.source_api].calls_a_day
            if one.source_api in configured
            else None,
        }
        for one in standing
    ]
    return contract_response({"sources": told})
