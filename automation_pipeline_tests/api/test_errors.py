"""Error responses of the API and of `/v1`, and the time limit of a request."""

import asyncio
import json
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.exceptions import HTTPException
from starlette.requests import Request

from automation_pipeline.api import errors
from automation_pipeline.api.errors import (
    AmbiguousLengthError,
    AuthenticationError,
    AuthorizationError,
    InvalidJsonError,
    TooBigError,
    answer_for,
    on_http_error,
    refusal,
    run_with_timeout,
    shortened,
    upstream_errors,
    v1_error_format,
)
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.access import Caller
from automation_pipeline.core.errors import (
    AutomationError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
    PermanentError,
    TransientError,
    UpstreamError,
)
from automation_pipeline.core.logs import correlated
from automation_pipeline.core.settings import Settings
from automation_pipeline.enrichment.routes import requester_of
from automation_pipeline.storage.database import DatabaseNotReadyError, DatabaseUnavailableError
from automation_pipeline_tests.cases import every_case

ANY_TEXT = st.text(st.characters(exclude_categories=()))


@given(ANY_TEXT, ANY_TEXT, ANY_TEXT)
def test_any_text_can_be_returned_in_an_error(sentence: str, field: str, message: str) -> None:
    document = json.loads(
        bytes(refusal(400, "VALIDATION_ERROR", sentence, [(field, message)]).body)
    )
    assert set(document) >= {"success", "error", "code", "details"}
    (fault,) = document["details"]
    assert set(fault) == {"field", "message"}


@every_case(
    ("text", "shown"),
    [("payload.a", "payload.a"), ("été", "été"), ("a\ud800b", "a\\ud800b"), ("\udfff", "\\udfff")],
)
def test_lone_surrogates_are_escaped_in_errors(text: str, shown: str) -> None:
    document = json.loads(bytes(refusal(400, "VALIDATION_ERROR", text, [(text, text)]).body))
    assert (document["error"], document["details"]) == (shown, [{"field": shown, "message": shown}])


@every_case(("org_id", "tenant"), [(None, "main"), ("acme", "acme")])
def test_the_requester_has_the_tenant_of_its_organisation(org_id: str | None, tenant: str) -> None:
    with correlated("c-1"):
        asking = requester_of(Caller("token:3", {}, org_id=org_id))
    assert (asking.tenant_id, asking.actor, asking.correlation_id) == (tenant, "token:3", "c-1")


def test_a_missing_correlation_id_is_generated() -> None:
    assert requester_of(Caller("token:3", {})).correlation_id


def services(seconds: float) -> Services:
    return Services(Settings(API_TIMEOUT_SECONDS=seconds))


def test_work_within_the_time_limit_returns_its_result() -> None:
    assert run_with_timeout(asyncio.sleep(0, "done"), services(600)) == "done"


def test_exceptions_of_work_within_the_time_limit_are_raised() -> None:
    async def fail() -> None:
        raise TransientError("The shop is away.")

    with pytest.raises(TransientError, match="The shop is away"):
        run_with_timeout(fail(), services(600))


def test_work_over_the_time_limit_is_cancelled() -> None:
    ends: list[str] = []

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ends.append("broken off")

    with pytest.raises(TimeoutError):
        run_with_timeout(hang(), services(0.01))
    assert ends == ["broken off"]


@every_case(
    ("error", "status", "code"),
    [
        (AuthenticationError("No"), 401, "AUTHENTICATION_ERROR"),
        (AuthorizationError("No"), 403, "AUTHORIZATION_ERROR"),
        (InvalidJsonError("No"), 400, "INVALID_JSON"),
        (AmbiguousLengthError("No"), 400, "VALIDATION_ERROR"),
        (TooBigError("No"), 413, "BODY_TOO_LARGE"),
        (InvalidInputError("No"), 400, "VALIDATION_ERROR"),
        (NotFoundError("No"), 404, "NOT_FOUND"),
        (ConflictError("No"), 409, "CONFLICT"),
        (DatabaseUnavailableError("No"), 503, "DATABASE_ERROR"),
        (DatabaseNotReadyError("No"), 503, "DATABASE_ERROR"),
        (UpstreamError("No"), 502, "EXTERNAL_API_ERROR"),
        (TransientError("No"), 503, "SERVICE_UNAVAILABLE"),
        (PermanentError("No"), 503, "CONFIGURATION_ERROR"),
    ],
)
def test_each_error_has_its_status_and_code(error: AutomationError, status: int, code: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        logged: list[tuple[object, object]] = []
        logger = SimpleNamespace(error=lambda _text, **about: logged.append(tuple(about.values())))
        patch.setattr(errors, "log", lambda _name: logger)
        response = answer_for(error)
    document = json.loads(bytes(response.body))
    assert (response.status_code, document["code"]) == (status, code)
    assert document["success"] is False
    assert response.headers.get("WWW-Authenticate") == ("Bearer" if status == 401 else None)
    assert logged == ([(str(error), status)] if status >= 500 else [])


@pytest.mark.parametrize("path", ["/api/fiches", "/v1/requests"])
def test_long_texts_and_lists_are_cut(path: str) -> None:
    fields = [("f" * 501, "m" * 501), *[("g", "n")] * 50]
    with v1_error_format(path, "r-1"):
        document = json.loads(bytes(refusal(400, "VALIDATION_ERROR", "s" * 600, fields).body))
    fault = document["details"][0]
    texts = fault["field"], fault["reason" if "reason" in fault else "message"]
    assert texts == ("f" * 500 + "...", "m" * 500 + "...")
    assert len(document["details"]) == 50
    sentence = document["message" if path.startswith("/v1/") else "error"]
    assert sentence == "s" * 500 + "..."
    assert shortened("x" * 500) == "x" * 500


@every_case(
    ("status", "code", "message"),
    [(404, "NOT_FOUND", "Route /x not found"), (405, "METHOD_NOT_ALLOWED", "No"), (418, "HTTP_ERROR", "No")],
)  # fmt: skip
def test_errors_of_the_framework_have_a_code(status: int, code: str, message: str) -> None:
    scope = {"type": "http", "path": "/x", "headers": [], "query_string": b"", "server": ("a", 1)}
    response = asyncio.run(on_http_error(Request(scope), HTTPException(status, "No")))
    document = json.loads(bytes(response.body))
    assert (response.status_code, document["code"], document["error"]) == (status, code, message)


@every_case(
    ("error", "kind", "message"),
    [
        (TransientError("Away."), UpstreamError, "Away."),
        (PermanentError("Refused."), UpstreamError, "Refused."),
        (NotFoundError("Missing."), NotFoundError, "Missing."),
        (ConflictError("No."), ConflictError, "No."),
        (InvalidInputError("Bad."), InvalidInputError, "Bad."),
        (DatabaseUnavailableError("Away."), DatabaseUnavailableError, "Away."),
        (DatabaseNotReadyError("Old."), DatabaseNotReadyError, "Old."),
        (KeyError("bug"), KeyError, "'bug'"),
    ],
)
def test_only_failures_of_external_systems_become_upstream_errors(
    error: Exception, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind) as raised, upstream_errors():
        raise error
    assert (type(raised.value), str(raised.value)) == (kind, message)
