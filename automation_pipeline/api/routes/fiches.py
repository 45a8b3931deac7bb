"""Fiches: the CRM's list of a day, one with its details, how they stand, and their recordings."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from automation_pipeline.api.bodies import TheBody
from automation_pipeline.api.context import FicheInPath, TheCaller, TheReach, TheServices
from automation_pipeline.api.days import day_parameters
from automation_pipeline.api.documented import takes
from automation_pipeline.api.envelope import Answer, answer, refusals
from automation_pipeline.api.errors import AuthorizationError
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.outside import asking_outside
from automation_pipeline.api.rules import Entity
from automation_pipeline.api.schemas.fiches import (
    SOME,
    CacheRow,
    DayShown,
    FicheDetails,
    FicheStatus,
    Found,
    RecordingList,
)
from automation_pipeline.api.scopes import audible, check_in_reach
from automation_pipeline.audits.store.fiche_audits import fiche_status, fiche_statuses, fiches_with_audits
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.access import Action, Caller, Permission, Reach
from automation_pipeline.fiches.domain.day_range import read_day
from automation_pipeline.fiches.domain.sales_document import sales_document
from automation_pipeline.fiches.domain.shown_details import without_mail_devis, without_recordings_audio
from automation_pipeline.fiches.domain.status_wish import StatusWish, read_status_wish
from automation_pipeline.fiches.stages.read_fiche import read_fiche
from automation_pipeline.fiches.stages.search_day import search_day
from automation_pipeline.fiches.store.calls import recordings_of
from automation_pipeline.fiches.store.status import Page, cache_row

router = APIRouter(route_class=GuardedRoute, tags=["fiches"])
PATH = "/api/fiches"
OF_FICHE = f"{PATH}/{{fiche_id}}"
NO_DATE = "Missing or invalid date parameter (YYYY-MM-DD required)"
WRONG_DATE = "Invalid date format. Use YYYY-MM-DD"

MostFiches = Annotated[int, Query(ge=1, le=10_000, description="At most so many fiches.")]
FirstFiche = Annotated[int, Query(ge=0, le=1_000_000_000, description="Leave out the first so many.")]


@router.get(
    f"{PATH}/search", response_model=Found, responses=refusals(502), openapi_extra=day_parameters(date="The day.")
)
async def search(
    request: Request,
    caller: TheCaller,
    reach: TheReach,
    services: TheServices,
    include_status: Annotated[bool, Query(alias="includeStatus", description="How each fiche stands.")] = True,
) -> Response:
    """Ask the CRM for the sales of a day, as it lists them now."""
    day, source, semaphore = (
        read_day(request.query_params.get("date"), NO_DATE),
        services.crm,
        services.sales_list_semaphore,
    )
    with asking_outside():
        sold = await search_day(day, reach, database=services.database, source=source, semaphore=semaphore)
    heard = await run_in_threadpool(_audible, caller, [fiche.fiche_id for fiche in sold], services)
    fiches = [sales_document(fiche, with_audio=fiche.fiche_id in heard) for fiche in sold]
    if include_status:
        statuses = await run_in_threadpool(_statuses, [fiche.fiche_id for fiche in sold], reach, services)
        fiches = [{**fiche, "status": statuses[str(fiche["id"])]} for fiche in fiches]
    return JSONResponse({"fiches": fiches, "total": len(fiches)})


@router.post(
    f"{PATH}/status/batch", response_model=Answer[dict[str, FicheStatus]], openapi_extra=takes(StatusWish, some=SOME)
)
def batch(body: TheBody, reach: TheReach, services: TheServices) -> Response:
    """How these fiches stand; what is hidden or unknown has an empty status."""
    wish = read_status_wish(body)
    with services.database.reading() as session:
        return answer(fiche_statuses(session, wish.fiche_ids, reach))


@router.get(
    f"{PATH}/status/by-date",
    response_model=Answer[DayShown],
    openapi_extra=day_parameters(date="The day of the sales."),
)
def by_date(
    request: Request,
    reach: TheReach,
    services: TheServices,
    limit: MostFiches = 10_000,
    offset: FirstFiche = 0,
) -> Response:
    """The fiches that were sold on a day, as far as they are known here. Nobody else is asked."""
    day = read_day(request.query_params.get("date"), WRONG_DATE)
    with services.database.reading() as session:
        fiches, total = fiches_with_audits(session, [day], reach, Page(limit, offset))
    return answer({"date": day.isoformat(), "total": total, "fiches": fiches})


@router.get(OF_FICHE, response_model=FicheDetails, responses=refusals(404, 502))
async def show(
    fiche_id: FicheInPath,
    caller: TheCaller,
    reach: TheReach,
    services: TheServices,
    refresh: Annotated[bool, Query(description="Ask the CRM now; needs fiches.write.")] = False,
    include_mail_devis: Annotated[bool, Query(description="Whether the offer that was mailed is shown.")] = True,
) -> Response:
    """Show one fiche. Where its calls can be heard is only for callers who may read recordings."""
    if refresh:
        await run_in_threadpool(_check_writes, fiche_id, caller, services)
    database, source, clock = services.database, services.crm, services.clock
    with asking_outside():
        document = await read_fiche(fiche_id, reach, refresh=refresh, database=database, source=source, clock=clock)
    if not include_mail_devis:
        document = without_mail_devis(document)
    heard = await run_in_threadpool(_audible, caller, [fiche_id], services)
    return JSONResponse(document if heard else without_recordings_audio(document))


@router.get(f"{OF_FICHE}/cache", response_model=Answer[CacheRow], responses=refusals(404))
def cache(fiche_id: FicheInPath, reach: TheReach, services: TheServices) -> Response:
    """What is kept of a fiche, in short."""
    with services.database.reading() as session:
        return answer(cache_row(session, fiche_id, reach))


@router.get(f"{OF_FICHE}/status", response_model=Answer[FicheStatus], responses=refusals(404))
def status(fiche_id: FicheInPath, reach: TheReach, services: TheServices) -> Response:
    """How one fiche stands."""
    with services.database.reading() as session:
        return answer(fiche_status(session, fiche_id, reach))


@router.get("/api/recordings/{fiche_id}", response_model=RecordingList, responses=refusals(404), tags=["recordings"])
def recordings(fiche_id: FicheInPath, reach: TheReach, services: TheServices) -> Response:
    """The recordings of a fiche, the oldest first."""
    with services.database.reading() as session:
        rows = recordings_of(session, fiche_id, reach)
    return answer(rows, count=len(rows))


def _statuses(fiche_ids: list[str], reach: Reach, services: Services) -> dict[str, dict[str, object]]:
    with services.database.reading() as session:
        found = fiche_statuses(session, fiche_ids, reach)
    return {fiche_id: {name: told[name] for name in told if name != "ficheId"} for fiche_id, told in found.items()}


def _audible(caller: Caller, fiche_ids: list[str], services: Services) -> set[str]:
    with services.database.reading() as session:
        return audible(session, caller, fiche_ids)


def _check_writes(fiche_id: str, caller: Caller, services: Services) -> None:
    writes = caller.reach(Permission.FICHES, Action.WRITE)
    if writes is None:
        raise AuthorizationError("Missing permission")
    if not writes.is_whole:
        check_in_reach(Entity.FICHE, fiche_id, writes, services.database)
