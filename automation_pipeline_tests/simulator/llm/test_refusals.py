"""The errors of the model, as the official client raises them."""

from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.simulator.llm.client import (
    CHAT,
    KEY,
    MODEL,
    audit,
    client_of,
)
from automation_pipeline_tests.simulator_control import NO_CERTIFICATES, configure_model


def test_a_wrong_key_is_refused_on_every_route_and_not_repeated(url: str, client: OpenAI) -> None:
    with client_of(url, "wrong-secret") as wrong_client:
        for attempt in (wrong_client.models.list, lambda: audit(wrong_client)):
            with pytest.raises(openai.AuthenticationError) as caught:
                attempt()
            assert caught.value.code == "invalid_api_key"
            assert "wrong-secret" not in str(caught.value)
    assert httpx.get(f"{url}/v1/models", verify=NO_CERTIFICATES).status_code == 401


def test_an_unknown_model_is_not_found(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="gpt-99", messages=CHAT)
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


@every_case(
    ("changed", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"messages": [{"role": "king", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [*CHAT, {"role": "tool", "tool_call_id": "c", "content": "x"}]}, "messages.[1].role"),
        ({"temperature": 3}, "temperature"),
        ({"n": 2}, "n"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"tool_choice": "auto"}, "tool_choice"),
        ({"tools": [{"type": "x"}]}, "tools[0].type"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": {
                "type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}}}},
            "response_format",
        ),
        ({"temprature": 1}, "temprature"),
    ],
)  # fmt: skip
def test_an_invalid_body_is_refused_with_the_name_of_the_field(
    client: OpenAI, changed: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.post(
            "/chat/completions", body={"model": MODEL, "messages": CHAT, **changed}, cast_to=object
        )
    assert (caught.value.type, caught.value.param) == ("invalid_request_error", param)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"[" * 100_000, b"\xff"])
def test_a_body_that_is_not_an_object_is_a_400(url: str, client: OpenAI, content: bytes) -> None:
    headers = {"authorization": f"Bearer {KEY}"}
    answer = httpx.post(
        f"{url}/v1/chat/completions", content=content, headers=headers, verify=NO_CERTIFICATES
    )
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")


def test_a_prompt_longer_than_the_context_is_refused(client: OpenAI, url: str) -> None:
    configure_model(url, context_characters=500)
    with pytest.raises(openai.BadRequestError) as caught:
        audit(client)
    assert caught.value.code == "context_length_exceeded"
    assert client.chat.completions.create(model=MODEL, messages=CHAT).choices


def test_a_call_above_the_cap_gets_a_retry_after(client: OpenAI, url: str) -> None:
    configure_model(url, per_minute=1)
    assert audit(client).choices
    with pytest.raises(openai.RateLimitError) as caught:
        audit(client)
    assert caught.value.code == "rate_limit_exceeded"
    assert 58 <= int(caught.value.response.headers["retry-after"]) <= 60
