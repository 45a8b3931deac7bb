"""A client of simulated registries in the process of the test, with a fake clock."""

from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from automation_pipeline.simulator.faults import BadRequestError, Faults
from automation_pipeline.simulator.gate import EXTENSION, Conditions, Gate
from automation_pipeline.simulator.ledger import Ledger
from automation_pipeline.simulator.registries import inpi, rcs, search
from automation_pipeline.simulator.registries.control import RegistriesControl
from automation_pipeline.simulator.registries.state import Credentials, RegistriesState
from automation_pipeline_tests.simulator_control import (
    ENTREPRISE_TOKEN,
    INPI_PASSWORD,
    INPI_USERNAME,
    PUBLIC_BODY,
)

SEED = 7
DANONE = "552032534"
KEYS = Credentials(INPI_USERNAME, INPI_PASSWORD, ENTREPRISE_TOKEN)
PURPOSE = {"context": "Tests", "object": "Tests of a simulator", "recipient": PUBLIC_BODY}


class FakeClock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class RegistriesClient:
    """Calls the registries from one address. `other_client` calls from another one."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.state = RegistriesState(SEED, KEYS, self.clock, self.clock)
        app = _app(self.state)
        self.client = TestClient(app, client=("10.0.0.1", 1))
        self.other_client = TestClient(app, client=("10.0.0.2", 1))

    def kinds(self, kind: str, count: int = 5) -> list[str]:
        return self.client.get(
            "/_sim/registries/sirens", params={"kind": kind, "count": count}
        ).json()["sirens"]

    def search(self, q: str, **more: str | int) -> httpx.Response:
        return self.client.get("/registries/search/search", params={"q": q, **more})

    def found(self, q: str, **more: str | int) -> Any:
        answer = self.search(q, **more)
        assert answer.status_code == 200, answer.text
        return answer.json()["results"]

    def login(self, password: str = INPI_PASSWORD, username: str = INPI_USERNAME) -> httpx.Response:
        return self.client.post(
            "/registries/inpi/api/sso/login", json={"username": username, "password": password}
        )

    def token(self) -> str:
        return self.login().json()["token"]

    def inpi(self, siren: str, token: str) -> httpx.Response:
        return self.client.get(
            f"/registries/inpi/api/companies/{siren}", headers={"Authorization": f"Bearer {token}"}
        )

    def rcs(self, siren: str, token: str = ENTREPRISE_TOKEN, **why: str) -> httpx.Response:
        path = f"/registries/entreprise/v3/infogreffe/rcs/unites_legales/{siren}/extrait_kbis"
        given = {name: value for name, value in {**PURPOSE, **why}.items() if value}
        return self.client.get(path, params=given, headers={"Authorization": f"Bearer {token}"})

    def set_up(self, **settings: object) -> None:
        assert self.client.put("/_sim/registries", json=settings).status_code == 200

    def shown(self) -> Any:
        return self.client.get("/_sim/registries").json()


class _Connected:
    """Gives the gate a transport that is connected, as uvicorn does."""

    def __init__(self, app: Gate) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app({**scope, "extensions": {EXTENSION: {"transport": self}}}, receive, send)

    def is_closing(self) -> bool:
        return False


def _app(state: RegistriesState) -> Starlette:
    provided = [search.endpoint(state), *inpi.endpoints(state), *rcs.endpoints(state)]
    ledger = Ledger(tuple(one.name for one in provided))
    conditions = Conditions(ledger, Faults(SEED), 0.0)
    routes = [
        Route(one.path, _Connected(Gate(one, conditions)), methods=one.methods) for one in provided
    ]
    routes += RegistriesControl(state, ledger).routes()
    return Starlette(routes=routes, exception_handlers={BadRequestError: _bad_request})


async def _bad_request(_request: Request, error: Exception) -> Response:
    return JSONResponse({"detail": str(error)}, 422)
