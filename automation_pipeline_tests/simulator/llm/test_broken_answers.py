"""Answers of the model that are cut, corrupted or missing. Only answers that reach the caller count their tokens."""

import json
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.simulator.llm.audit_prompts import prompt
from automation_pipeline_tests.simulator.llm.client import (
    CHAT,
    FICHE,
    MODEL,
    ROUTE,
    WITHDRAWAL,
    Finding,
    audit,
)
from automation_pipeline_tests.simulator_control import NO_CERTIFICATES, add_faults, model_totals


def test_a_low_token_limit_cuts_the_answer(client: OpenAI) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=CHAT, max_completion_tokens=3)
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage
    assert answer.usage.completion_tokens == 3


def test_faults_have_openais_error_format_and_count_no_tokens(client: OpenAI, url: str) -> None:
    add_faults(
        url,
        {"route": ROUTE, "status": 500, "first": 1},
        {"route": ROUTE, "status": 429, "retry_after": 2, "first": 1},
    )
    add_faults(
        url,
        {"route": ROUTE, "body": "truncated", "first": 1},
        {"route": ROUTE, "drop": True, "first": 1},
    )
    with pytest.raises(openai.InternalServerError):
        audit(client)
    with pytest.raises(openai.RateLimitError) as caught:
        audit(client)
    assert (caught.value.code, caught.value.response.headers["retry-after"]) == (
        "rate_limit_exceeded",
        "2",
    )
    with pytest.raises(json.JSONDecodeError):
        audit(client)
    with pytest.raises(openai.APIConnectionError):
        audit(client)
    assert model_totals(url)["answered"] == 0
    assert audit(client).choices[0].message.parsed
    totals = model_totals(url)
    assert (totals["calls"], totals["answered"], totals["items"]) == (5, 1, {f"{FICHE.id}/3": 1})


@pytest.mark.parametrize(
    ("body", "ending", "is_json"),
    [
        ("content_not_json", "stop", False),
        ("content_reasoned", "stop", False),
        ("content_wrong_enum", "stop", True),
        ("content_missing_field", "stop", True),
        ("content_cut", "length", False),
        ("refusal", "stop", False),
    ],
)
def test_broken_answers_count_their_tokens(
    client: OpenAI, url: str, body: str, ending: str, is_json: bool
) -> None:
    add_faults(url, {"route": ROUTE, "body": body, "first": 1})
    messages: Any = [{"role": "user", "content": prompt(FICHE, WITHDRAWAL)}]
    answer = client.chat.completions.create(model=MODEL, messages=messages)
    message = answer.choices[0].message
    assert answer.choices[0].finish_reason == ending
    assert (message.refusal is not None) == (body == "refusal")
    if is_json:
        assert json.loads(message.content or "")
    with pytest.raises(ValueError, match="Finding"):
        Finding.model_validate_json(message.content or "")
    assert answer.usage
    assert model_totals(url)["completion_tokens"] == answer.usage.completion_tokens


def test_only_the_model_has_these_broken_bodies(url: str, client: OpenAI) -> None:
    posted = {"route": "crm.details", "body": "refusal"}
    answer = httpx.post(f"{url}/_sim/faults", json=posted, verify=NO_CERTIFICATES)
    assert (answer.status_code, "is for a language model" in answer.text) == (422, True)


@every_case("posted", ["", "3", "{}", '{"inventions": 2}', '{"per_minute": -1}', '{"other": 1}'])
def test_an_invalid_configuration_is_refused(url: str, posted: str) -> None:
    assert httpx.put(f"{url}/_sim/llm", content=posted, verify=NO_CERTIFICATES).status_code == 422
