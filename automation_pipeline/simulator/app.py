"""The simulator as one ASGI application: every provider's endpoints behind gates, and the control endpoints.

To add a provider, write a module with `endpoints(world, ...)` and list it here.
"""

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from automation_pipeline.simulator import audio
from automation_pipeline.simulator.cap import Cap
from automation_pipeline.simulator.control import Control, States
from automation_pipeline.simulator.crm import gateway as crm
from automation_pipeline.simulator.faults import BadRequestError, Faults
from automation_pipeline.simulator.gate import Conditions, Gate
from automation_pipeline.simulator.ledger import Ledger
from automation_pipeline.simulator.llm import openai as llm
from automation_pipeline.simulator.llm.control import ModelState
from automation_pipeline.simulator.pusher import channels_api as pusher
from automation_pipeline.simulator.pusher.channels_api import App, Published
from automation_pipeline.simulator.registries import inpi, rcs, search
from automation_pipeline.simulator.registries.state import Credentials, RegistriesState
from automation_pipeline.simulator.shop import admin_api as shop
from automation_pipeline.simulator.shop.catalogue import Sizes
from automation_pipeline.simulator.shop.state import ShopState
from automation_pipeline.simulator.speech import elevenlabs as speech
from automation_pipeline.simulator.world.world import World


def create_app(  # noqa: PLR0913 - one keyword per option
    world: World,
    *,
    token: str,
    latency: float,
    speech_key: str,
    speech_per_minute: int,
    llm_key: str,
    llm_per_minute: int,
    pusher_app: App,
    shop_token: str,
    shop_sizes: Sizes,
    registry_keys: Credentials,
) -> Starlette:
    speech_cap = Cap(speech_per_minute)
    model = ModelState(Cap(llm_per_minute))
    published = Published()
    shop_state = ShopState(world.seed, shop_sizes)
    registries = RegistriesState(world.seed, registry_keys)
    provided = [
        *crm.endpoints(world, token),
        *audio.endpoints(world),
        *speech.endpoints(world, speech_key, speech_cap),
        *llm.endpoints(world.seed, llm_key, model),
        *pusher.endpoints(pusher_app, published),
        *shop.endpoints(shop_token, shop_state),
        search.endpoint(registries),
        *inpi.endpoints(registries),
        *rcs.endpoints(registries),
    ]
    endpoints = {endpoint.name: endpoint for endpoint in provided}
    conditions = Conditions(Ledger(tuple(endpoints)), Faults(world.seed), latency)
    app = Starlette(
        routes=[
            *(
                Route(e.path, Gate(e, conditions), methods=e.methods, name=e.name)
                for e in endpoints.values()
            ),
            *Control(
                conditions, endpoints, States(speech_cap, model, published, shop_state, registries)
            ).routes(),
        ],
        exception_handlers={BadRequestError: _bad_request, HTTPException: _refusal},
    )
    app.state.conditions = conditions
    return app


async def _bad_request(_request: Request, error: Exception) -> Response:
    return JSONResponse({"detail": str(error)}, 422)


async def _refusal(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for this class only
    return JSONResponse({"detail": error.detail}, error.status_code, error.headers)
