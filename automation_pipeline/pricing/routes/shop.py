"""HTTP endpoints of the shop, of dead letters, and of price changes and alerts."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from automation_pipeline.api.bodies import json_body
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.idempotency import OncePerKey
from automation_pipeline.api.parameters import (
    CallerDep,
    ContextDep,
    DatabaseDep,
    Limit,
    Offset,
    ServicesDep,
)
from automation_pipeline.api.responses import (
    Answer,
    Following,
    Listing,
    answer,
    following,
    listed,
    refusals,
)
from automation_pipeline.core.json_model import JsonModel
from automation_pipeline.pricing.models.rules import DEFAULT_PROJECT
from automation_pipeline.pricing.models.shop import ShopShown
from automation_pipeline.pricing.models.transforms import Flag
from automation_pipeline.pricing.monitoring import (
    acknowledge_dead_letters,
    list_alerts,
    price_changes,
    report_dead_letters,
    retry_dead_letters,
)
from automation_pipeline.pricing.routes.runs import (
    FORCED,
    SOME,
    AfterId,
    ItsProject,
    Project,
    RunId,
    TargetIds,
)
from automation_pipeline.pricing.rules.monitoring import (
    DeadLetterReport,
    PriceChange,
    PriceChangeFilter,
    PricingAlert,
)
from automation_pipeline.pricing.shop import pause_shop, resume_shop, shop_status


class ShopPauseInput(JsonModel):
    reason: str | None = Field(default=None, max_length=1000)


router = APIRouter(route_class=GuardedRoute, tags=["pricing shop"])
PATH = "/api/pricing/shop"


@router.get(PATH, response_model=Answer[ShopShown])
def show(services: ServicesDep) -> Response:
    """Show the circuit of the shop, its bucket of points, and who has paused it. The shop is not
    called."""
    return answer(services.database.read(shop_status, services.storefront.name))


@router.post(f"{PATH}/pause", response_model=Answer[ShopShown])
def pause(
    given: Annotated[
        ShopPauseInput,
        json_body(
            ShopPauseInput,
            "Invalid pause data",
            required=False,
            audit={"reason": "The accountants count the stock"},
        ),
    ],
    caller: CallerDep,
    services: ServicesDep,
) -> Response:
    """Write no more prices until the shop is resumed. Runs wait; previews and checks continue."""
    return answer(
        pause_shop(
            services.storefront.name,
            database=services.database,
            actor=caller.id,
            reason=given.reason,
        )
    )


@router.post(f"{PATH}/resume", response_model=Answer[ShopShown])
def resume(services: ServicesDep) -> Response:
    """Resume writing prices. Runs continue, and an open circuit is closed."""
    return answer(
        resume_shop(services.storefront.name, database=services.database, clock=services.clock)
    )


class LettersRetryInput(JsonModel):
    """With `force`, also targets whose cause was removed."""

    force: Flag = False


class AcknowledgeInput(JsonModel):
    """Without `targetIds`, all dead letters of the project."""

    target_ids: TargetIds | None = None


class RunSkipped(BaseModel):
    runId: str  # noqa: N815  its name in JSON
    why: str


class LettersRetried(BaseModel):
    runIds: list[str] = Field(examples=[["12", "15"]])  # noqa: N815  its name in JSON
    skipped: list[RunSkipped] = Field(description="The runs that cannot be retried now.")


class Acknowledged(BaseModel):
    acknowledged: int


letters_router = APIRouter(route_class=GuardedRoute, tags=["pricing dead letters"])
LETTERS = "/api/pricing/dead-letters"


@letters_router.get(LETTERS, response_model=Answer[DeadLetterReport])
def report(services: ServicesDep, project: ItsProject = DEFAULT_PROJECT) -> Response:
    """Report the failed, unacknowledged targets of a project: the number of each kind, and the
    recommended action."""
    return answer(report_dead_letters(project, database=services.database, clock=services.clock))


@letters_router.post(
    f"{LETTERS}/retry",
    status_code=202,
    response_model=Answer[LettersRetried],
    responses=refusals(409),
)
def retry(
    given: Annotated[
        LettersRetryInput,
        json_body(LettersRetryInput, "Invalid retry data", required=False, forced=FORCED),
    ],
    context: ContextDep,
    once: OncePerKey,
    project: ItsProject = DEFAULT_PROJECT,
) -> Response:
    """Request a retry of all retryable failed targets of a project, run by run."""

    def work() -> Response:
        retried = retry_dead_letters(project, force=given.force, **context)
        return answer(
            {
                "runIds": [str(run_id) for run_id in retried.runs],
                "skipped": [
                    {"runId": str(run_id), "why": why} for run_id, why in retried.skipped.items()
                ],
            },
            status=202,
        )

    return once(work)


@letters_router.post(f"{LETTERS}/acknowledge", response_model=Answer[Acknowledged])
def acknowledge(
    given: Annotated[
        AcknowledgeInput,
        json_body(AcknowledgeInput, "Invalid acknowledgement", required=False, some=SOME),
    ],
    context: ContextDep,
    project: ItsProject = DEFAULT_PROJECT,
) -> Response:
    """Acknowledge these dead letters, or all of the project: they no longer count. Safe to repeat."""
    return answer({"acknowledged": acknowledge_dead_letters(project, given.target_ids, **context)})


history_router = APIRouter(route_class=GuardedRoute, tags=["pricing history"])


def _chosen(
    project: Project = None,
    variant: Annotated[
        str | None, Query(max_length=255, description="Only entries of this variant.")
    ] = None,
    run_id: RunId = None,
) -> PriceChangeFilter:
    return PriceChangeFilter(project_id=project, variant_id=variant, run_id=run_id)


@history_router.get("/api/pricing/price-changes", response_model=Following[PriceChange])
def changes(
    database: DatabaseDep,
    chosen: Annotated[PriceChangeFilter, Depends(_chosen)],
    after: AfterId = 0,
    limit: Limit = 100,
) -> Response:
    """List every price that runs and rollbacks have written in the shop, oldest first."""
    return following(
        database.read(
            price_changes,
            chosen,
            limit,
            after,
        ),
        limit,
    )


@history_router.get("/api/pricing/alerts", response_model=Listing[PricingAlert])
def alerts(
    database: DatabaseDep, project: Project = None, limit: Limit = 50, offset: Offset = 0
) -> Response:
    """List the alerts, newest first, with the state of their delivery."""
    return listed(database.read(list_alerts, project, limit, offset), limit, offset)
