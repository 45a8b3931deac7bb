"""The API over a migrated database, and clients with the grants of a test."""

import asyncio
from collections.abc import Callable, Generator, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import jwt
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.types import ASGIApp

from automation_pipeline.access.tokens import create_token
from automation_pipeline.api.app import create_app
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.access import Caller, whole_grants
from automation_pipeline.core.settings import Settings
from automation_pipeline.org_jobs.queries.organisations import has_organisation
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.api.openapi_check import openapi_check
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.shop import FakeShop, product_variants
from automation_pipeline_tests.org_jobs.data import OrgJobsData
from automation_pipeline_tests.pricing.harness import PricingHarness

MACHINE = "a-machine-token-for-tests"
SECRET = "a-secret-that-is-long-enough-for-hs256"

Client = TestClient
Login = Callable[..., TestClient]
Member = Callable[..., TestClient]


def user_token(
    grants: Mapping[str, str],
    *,
    groupes: Iterable[str] = (),
    crm_user: str | None = None,
    **claims: Any,
) -> str:
    """`grants` maps a permission such as `automation.write` to its scope."""
    listed: dict[str, dict[str, object]] = {}
    for name, scope in grants.items():
        key, _, action = name.rpartition(".")
        listed.setdefault(key, {"key": key})[action] = True
        listed[key][f"{action}_scope"] = scope
    values = {
        "sub": "12",
        "email": "anna@example.test",
        "iss": "ai-audit",
        "aud": "ai-audit",
        "exp": datetime.now(UTC) + timedelta(minutes=15),
        "groupes": list(groupes),
        "crm_user_id": crm_user,
        "permission_grants": list(listed.values()),
        **claims,
    }
    return jwt.encode(values, SECRET, algorithm="HS256")


def services_on(url: str) -> Services:
    return Services(Settings(DATABASE_URL=url, API_AUTH_TOKENS=MACHINE, JWT_ACCESS_SECRET=SECRET))


def client_of(api: ASGIApp, token: str) -> TestClient:
    return TestClient(
        api, headers={"Authorization": f"Bearer {token}"}, raise_server_exceptions=False
    )


@pytest.fixture
def services(database: Database, clock: FakeClock) -> Services:
    created = services_on(database.url.render_as_string(hide_password=False))
    created.clock = clock
    created.__dict__["database"] = database
    return created


@cache
def _app() -> FastAPI:
    """Creating the app is slow, so tests share it and replace its services."""
    return create_app(services_on("sqlite:///never-opened.db"))


@pytest.fixture
def api(services: Services) -> ASGIApp:
    app = _app()
    app.state.services, app.state.stopping = services, asyncio.Event()
    return app


@pytest.fixture
def client(api: ASGIApp) -> Generator[TestClient]:
    """A client with a machine token that has all permissions."""
    with client_of(api, MACHINE) as created:
        yield created


@pytest.fixture
def harness(services: Services, clock: FakeClock) -> PricingHarness:
    """A fake shop with two products at 10 EUR each, used by the API as well."""
    created = PricingHarness(services.database, clock, FakeShop(*product_variants(2)))
    services.__dict__["storefront"] = created.storefront
    return created


@pytest.fixture
def pricing(api: FastAPI, harness: PricingHarness) -> Generator[TestClient]:
    """A client with a machine token and a shop. Validates responses against the OpenAPI document."""
    assert harness.shop
    with client_of(api, MACHINE) as created:
        created.event_hooks = {"response": [openapi_check(api)]}
        yield created


@pytest.fixture
def login(api: ASGIApp) -> Login:
    """A client with a user token: `login({"fiches.read": "GROUP"}, groupes=["NORD"])`."""
    return lambda grants, **about: client_of(api, user_token(grants, **about))


@pytest.fixture
def orgs(services: Services, clock: FakeClock) -> OrgJobsData:
    """Creates entities of organisations directly in the database."""
    return OrgJobsData(services.database, clock)


@pytest.fixture
def operator(api: FastAPI, orgs: OrgJobsData) -> Generator[TestClient]:
    """A client with a machine token without an organisation. Validates responses against the OpenAPI
    document."""
    orgs.organisation("acme")
    with client_of(api, MACHINE) as created:
        created.event_hooks = {"response": [openapi_check(api)]}
        yield created


@pytest.fixture
def member(api: FastAPI, services: Services, orgs: OrgJobsData) -> Member:
    """A client with a token of an organisation: `member("acme", "org-jobs.write")`."""

    def created(org_id: str, *permissions: str) -> TestClient:
        orgs.organisation(org_id)
        request = {
            "name": f"of {org_id}",
            "orgId": org_id,
            "permissions": permissions or ("org-jobs.write",),
        }
        giver = Caller("machine:tests", whole_grants())
        issued = create_token(
            {**request, "scope": "ALL"},
            database=services.database,
            clock=services.clock,
            issuer=giver,
            organisation_exists=has_organisation,
        )
        client = client_of(api, issued.secret)
        client.event_hooks = {"response": [openapi_check(api)]}
        return client

    return created
