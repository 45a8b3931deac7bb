"""The permission rules of the routes."""

import re
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI
from fastapi.testclient import TestClient

from automation_pipeline import migrations
from automation_pipeline.api.app import create_app
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.permissions import (
    RULES,
    Action,
    Rule,
    ScopeCheck,
    UnruledRouteError,
    allowed_methods,
    is_shadowed,
)
from automation_pipeline.core.access import Permission
from automation_pipeline_tests.api.conftest import (
    MACHINE,
    Login,
    client_of,
    services_on,
    user_token,
)
from automation_pipeline_tests.cases import every_case

# Routes with these permissions must respect the caller's scope.
FICHE_PERMISSIONS = {
    Permission.AUDITS,
    Permission.AUTOMATION,
    Permission.FICHES,
    Permission.RECORDINGS,
    Permission.TRANSCRIPTIONS,
}
UNSCOPED_ROUTES = {("GET", "/api/automation/diagnostic")}
# The diagnostic calls all external systems and is slow.
SLOW = {"/api/automation/diagnostic"}
ALL_CASES = [
    pytest.param(method, path, rule, id=f"{method} {path}")
    for (method, path), rule in RULES.items()
]
CASES_WITH_PERMISSION = [case for case in ALL_CASES if case.values[2].permission is not None]
CASES_WITH_CREDENTIALS = [case for case in ALL_CASES if not case.values[2].public]
CASES_SCOPED_BY_PATH = [case for case in ALL_CASES if case.values[2].scoped is ScopeCheck.BY_PATH]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> FastAPI:
    """One app for all tests, because they request only missing entities."""
    path = tmp_path_factory.mktemp("rules") / "automation.db"
    services = services_on(f"sqlite:///{path}")
    migrations.upgrade(services.database)
    return create_app(services)


@pytest.fixture(scope="module")
def login(api: FastAPI) -> Login:
    return lambda grants, **about: client_of(api, user_token(grants, **about))


@pytest.fixture(scope="module")
def client(api: FastAPI) -> TestClient:
    return client_of(api, MACHINE)


def request_missing(client: TestClient, method: str, path: str) -> Any:
    """Sends the request with ids that do not exist and without a body."""
    return client.request(method, re.sub(r"\{\w+\}", "987654", path))


def test_routes_and_permission_rules_match(api: FastAPI) -> None:
    routes = {
        (method.upper(), path)
        for path, methods in api.openapi()["paths"].items()
        for method in methods
    }
    assert routes == set(RULES)


def test_a_route_without_a_rule_cannot_be_registered() -> None:
    def backdoor() -> None: ...

    router = APIRouter(route_class=GuardedRoute)
    with pytest.raises(UnruledRouteError, match="GET /api/backdoor has no rule"):
        router.add_api_route("/api/backdoor", backdoor, methods=["GET"])


def test_routes_about_fiches_are_scoped() -> None:
    unscoped = {
        route
        for route, rule in RULES.items()
        if rule.permission in FICHE_PERMISSIONS and rule.scoped is ScopeCheck.NOTHING
    }
    assert unscoped == UNSCOPED_ROUTES


def test_entities_in_paths_are_checked() -> None:
    for (_, path), rule in RULES.items():
        named = re.findall(r"\{(fiche_id|audit_id|schedule_id|run_id|job_id)\}", path)
        assert [rule.entity] == named if named else rule.entity is None, path


@every_case(("method", "path", "rule"), CASES_WITH_CREDENTIALS)
def test_missing_or_invalid_credentials_are_401(
    client: TestClient, method: str, path: str, rule: Rule
) -> None:
    for headers in (
        {"Authorization": ""},
        {"Authorization": "Bearer no"},
        {"Authorization": "Basic eDp5"},
    ):
        answered = client.request(method, re.sub(r"\{\w+\}", "1", path), headers=headers)
        assert (answered.status_code, answered.json()["code"]) == (401, "AUTHENTICATION_ERROR")


@every_case(("method", "path", "rule"), CASES_WITH_PERMISSION)
def test_a_route_refuses_callers_without_its_permission(
    login: Login, method: str, path: str, rule: Rule
) -> None:
    other = Action.READ if rule.action is Action.WRITE else Action.WRITE
    others = {
        f"{permission}.write": "ALL"
        for permission in Permission
        if permission is not rule.permission
    }
    others |= {
        f"{permission}.read": "ALL"
        for permission in Permission
        if permission is not rule.permission
    }
    for grants in ({}, others, {f"{rule.permission}.{other}": "ALL"}):
        answered = request_missing(login(grants), method, path)
        assert (answered.status_code, answered.json()["code"]) == (403, "AUTHORIZATION_ERROR")


@every_case(
    ("method", "path", "rule"),
    [case for case in CASES_WITH_PERMISSION if case.values[1] not in SLOW],
)
def test_a_route_accepts_callers_with_its_permission(
    login: Login, method: str, path: str, rule: Rule
) -> None:
    answered = request_missing(login({f"{rule.permission}.{rule.action}": "ALL"}), method, path)
    assert answered.status_code not in {401, 403}


@every_case("scope", ["SELF", "GROUP"])
@every_case(("method", "path", "rule"), CASES_SCOPED_BY_PATH)
def test_an_entity_out_of_scope_is_404(
    login: Login, method: str, path: str, rule: Rule, scope: str
) -> None:
    answered = request_missing(
        login({f"{rule.permission}.{rule.action}": scope}, groupes=["NORD"]), method, path
    )
    assert (answered.status_code, answered.json()["code"]) == (404, "NOT_FOUND")


@every_case(
    ("path", "methods"),
    [
        ("/health", ("GET",)),
        ("/api/audits", ("GET", "POST")),
        ("/api/audits/grouped", ("GET",)),
        ("/api/audits/12", ("DELETE", "GET", "PATCH")),
        ("/v1/requests/7", ("GET",)),
        ("/v1/requests/7:refresh-company", ("POST",)),
        ("/api/audits/12/nothing", ()),
        ("/nothing", ()),
    ],
)
def test_fixed_paths_and_actions_precede_parameters(path: str, methods: tuple[str, ...]) -> None:
    assert allowed_methods(path) == methods
    assert not any(is_shadowed(path, method) for method in methods)


@every_case(
    ("path", "method", "shadowed"),
    [
        ("/api/audits/grouped", "DELETE", True),
        ("/v1/requests/7:refresh-company", "GET", True),
        ("/api/audits/12", "PUT", False),
        ("/nothing", "GET", False),
    ],
)
def test_a_route_with_a_parameter_does_not_answer_for_a_fixed_path(
    path: str, method: str, shadowed: bool
) -> None:
    assert is_shadowed(path, method) is shadowed
