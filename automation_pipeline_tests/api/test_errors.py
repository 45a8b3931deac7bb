"""Error responses of the API and of `/v1`, and the time limit of a request."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.api.errors import refusal, run_with_timeout
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.access import Caller
from automation_pipeline.core.errors import TransientError
from automation_pipeline.core.logs import correlated
from automation_pipeline.core.settings import Settings
from automation_pipeline.enrichment.routes import requester_of
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


def test_done_in_time_returns_the_result() -> None:
    assert run_with_timeout(asyncio.sleep(0, "done"), services(600)) == "done"


def test_done_in_time_propagates_exceptions() -> None:
    async def fail() -> None:
        raise TransientError("The shop is away.")

    with pytest.raises(TransientError, match="The shop is away"):
        run_with_timeout(fail(), services(600))


def test_done_in_time_cancels_work_over_the_limit() -> None:
    ends: list[str] = []

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ends.append("broken off")

    with pytest.raises(TimeoutError):
        run_with_timeout(hang(), services(0.01))
    assert ends == ["broken off"]
