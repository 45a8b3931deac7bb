"""Errors as answers, of the API and of `/v1`, and the time limit of a request."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.api.errors import done_in_time, refusal
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.access import Caller
from automation_pipeline.core.errors import TransientError
from automation_pipeline.core.logs import correlated
from automation_pipeline.core.settings import Settings
from automation_pipeline.enrichment.routes import requester_of
from automation_pipeline_tests.tables import every_case

ANY_TEXT = st.text(st.characters(exclude_categories=()))


@given(ANY_TEXT, ANY_TEXT, ANY_TEXT)
def test_any_sentence_and_any_field_can_be_answered(
    sentence: str, field: str, message: str
) -> None:
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
def test_half_a_character_is_told_by_its_escape(text: str, shown: str) -> None:
    document = json.loads(bytes(refusal(400, "VALIDATION_ERROR", text, [(text, text)]).body))
    assert (document["error"], document["details"]) == (shown, [{"field": shown, "message": shown}])


@every_case(("org_id", "tenant"), [(None, "main"), ("acme", "acme")])
def test_who_belongs_to_an_organisation_asks_as_that(org_id: str | None, tenant: str) -> None:
    with correlated("c-1"):
        asking = requester_of(Caller("token:3", {}, org_id=org_id))
    assert (asking.tenant_id, asking.actor, asking.correlation_id) == (tenant, "token:3", "c-1")


def test_without_a_correlation_id_one_is_made_up() -> None:
    assert requester_of(Caller("token:3", {})).correlation_id


def services(seconds: float) -> Services:
    return Services(Settings(API_TIMEOUT_SECONDS=seconds))


def test_what_it_comes_to_is_answered() -> None:
    assert done_in_time(asyncio.sleep(0, "done"), services(600)) == "done"


def test_its_failure_is_its_own() -> None:
    async def fail() -> None:
        raise TransientError("The shop is away.")

    with pytest.raises(TransientError, match="The shop is away"):
        done_in_time(fail(), services(600))


def test_what_takes_too_long_is_broken_off() -> None:
    ends: list[str] = []

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ends.append("broken off")

    with pytest.raises(TimeoutError):
        done_in_time(hang(), services(0.01))
    assert ends == ["broken off"]
