"""Errors of `/v1` have the body of its contract. Errors of other routes keep their format."""

import pytest
from fastapi.testclient import TestClient

from automation_pipeline_tests.api.conftest import client_of


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/nonsense", 404, "NOT_FOUND"),
        ("DELETE", "/v1/sources", 405, "METHOD_NOT_ALLOWED"),
        ("GET", "/v1/requests/x", 400, "VALIDATION_ERROR"),
        ("POST", "/v1/requests", 400, "INVALID_JSON"),
    ],
)
@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_every_v1_error_has_the_body_of_the_contract(
    client: TestClient, method: str, path: str, status: int, code: str
) -> None:
    refused = client.request(method, path, headers={"X-Request-Id": "r-1"})
    document = refused.json()
    assert (refused.status_code, document["code"], document["request_id"]) == (status, code, "r-1")
    assert document["correlation_id"] == "r-1"
    assert document["timestamp"].endswith("Z")


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_a_401_in_v1_has_the_body_of_the_contract(api) -> None:  # noqa: ANN001  an ASGI application
    refused = client_of(api, "no").get("/v1/sources")
    assert (refused.status_code, refused.json()["error"]) == (401, "Unauthorized")
    assert refused.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize("given", ["", "a b", "x" * 129])
@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_an_invalid_correlation_id_is_replaced(client: TestClient, given: str) -> None:
    answered = client.get("/v1/nonsense", headers={"X-Correlation-Id": given})
    assert answered.json()["correlation_id"] == answered.headers["X-Correlation-Id"] != given


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_errors_outside_v1_keep_their_format(client: TestClient) -> None:
    refused = client.get("/api/nonsense", headers={"X-Correlation-Id": "c-1"})
    assert set(refused.json()) == {"success", "error", "code", "requestId"}
    assert "X-Correlation-Id" not in refused.headers
