"""Companies as they are known, and how the registers stand that they come from."""

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import Response

from automation_pipeline.api.context import TheServices
from automation_pipeline.api.contract_answers import REFUSED, by_contract, named, shown
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.schemas.company_requests import CompanyShown, SourcesShown
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.enrichment.store.views import find_company, source_views

router = APIRouter(route_class=GuardedRoute, tags=["companies"], responses=REFUSED)

SirenInPath = Annotated[str, Path(pattern=r"^[0-9]{9}$", examples=["552032534"])]


@router.get("/v1/companies/{siren}", response_model=CompanyShown, responses=by_contract(404))
def show(siren: SirenInPath, services: TheServices) -> Response:
    """Show a company as it was last consolidated, with the source of each field. Nobody is asked for it."""
    with services.database.reading() as session:
        company = find_company(session, siren)
    if company is None:
        raise NotFoundError(f"Nothing is known of company {siren}: POST /v1/requests asks for it.")
    return shown(named(company))


@router.get("/v1/sources", response_model=SourcesShown)
def sources(services: TheServices) -> Response:
    """Show how the sources stand: which are configured, which rest and until when, and their calls of today (UTC)."""
    configured = services.registries.sources
    with services.database.reading() as session:
        standing = source_views(session, services.clock.now())
    told = [
        {
            **named(one),
            "is_configured": one.source_api in configured,
            "calls_a_day": configured[one.source_api].calls_a_day if one.source_api in configured else None,
        }
        for one in standing
    ]
    return shown({"sources": told})
