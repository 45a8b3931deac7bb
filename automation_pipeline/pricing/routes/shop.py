"""HTTP endpoints of the shop: status, pause, resume."""

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from automation_pipeline.api.bodies import OptionalBody
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.openapi import takes
from automation_pipeline.api.parameters import TheCaller, TheServices
from automation_pipeline.api.responses import Answer, answer
from automation_pipeline.core.json_model import JsonModel, as_document, parse
from automation_pipeline.pricing.queries.shops import shop_status
from automation_pipeline.pricing.shop import ShopShown, pause_shop, resume_shop


class ShopPauseInput(JsonModel):
    reason: str | None = Field(default=None, max_length=1000)


router = APIRouter(route_class=GuardedRoute, tags=["pricing shop"])
PATH = "/api/pricing/shop"


@router.get(PATH, response_model=Answer[ShopShown])
def show(services: TheServices) -> Response:
    """Show how the shop stands: its circuit, its bucket of points, and who has paused it. It is not
    called for that."""
    name = services.storefront.name
    with services.database.reading() as session:
        standing = shop_status(session, name)
    return _shown(ShopShown(shop=name) if standing is None else ShopShown.of(standing))


@router.post(
    f"{PATH}/pause",
    response_model=Answer[ShopShown],
    openapi_extra=takes(
        ShopPauseInput, required=False, audit={"reason": "The accountants count the stock"}
    ),
)
def pause(body: OptionalBody, caller: TheCaller, services: TheServices) -> Response:
    """Write no more prices until the shop is resumed. Runs wait; previews and looks at the shop go
    on."""
    reason = parse(ShopPauseInput, body, "Invalid pause data").reason
    name = services.storefront.name
    return _shown(
        ShopShown.of(pause_shop(name, database=services.database, actor=caller.id, reason=reason))
    )


@router.post(f"{PATH}/resume", response_model=Answer[ShopShown])
def resume(services: TheServices) -> Response:
    """Write prices again: runs go on where they were. An open circuit is closed with it."""
    name = services.storefront.name
    return _shown(ShopShown.of(resume_shop(name, database=services.database, clock=services.clock)))


def _shown(shop: ShopShown) -> Response:
    return answer(as_document(shop))
