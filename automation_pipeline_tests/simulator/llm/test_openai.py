"""The official client against the simulated model over a real socket."""

import json
from typing import Any

import openai
import pytest
from openai import OpenAI

from automation_pipeline_tests.simulator.llm.audit_prompts import chunks, prompt, tool_prompt
from automation_pipeline_tests.simulator.llm.client import (
    CHAT,
    FICHE,
    MODEL,
    WEATHER,
    WITHDRAWAL,
    Finding,
    audit,
    items,
)
from automation_pipeline_tests.simulator_control import model_totals


def test_a_plain_chat_has_a_text_answer_in_openais_format(client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL,
        messages=CHAT,
        temperature=0,
        seed=3,
        user="u",
        reasoning_effort="high",
        verbosity="high",
    )
    assert answer.object == "chat.completion"
    assert answer.model == MODEL
    assert answer.id.startswith("chatcmpl-")
    assert (answer.choices[0].finish_reason, answer.choices[0].message.role) == (
        "stop",
        "assistant",
    )
    assert answer.choices[0].message.content
    assert answer.usage
    assert answer.usage.prompt_tokens == -(-len(CHAT[0]["content"]) // 4)
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_a_step_is_judged_and_parsed_into_a_model(client: OpenAI, url: str) -> None:
    answer = audit(client)
    finding = answer.choices[0].message.parsed
    present, absent = finding.points_controle
    assert (present.statut, absent.statut, absent.citations) == ("PRESENT", "ABSENT", [])
    assert (finding.conforme, finding.score, finding.mots_cles_trouves) == (
        "PARTIEL",
        4,
        ["rétractation"],
    )
    citation = present.citations[0]
    assert citation.texte in chunks(FICHE)[citation.recording_index, citation.chunk_index]
    assert (
        citation.minutage
        == f"{int(citation.minutage_secondes) // 60:02d}:{int(citation.minutage_secondes) % 60:02d}"
    )
    assert items(url) == {f"{FICHE.id}/3": 1}
    totals = model_totals(url)
    assert (totals["calls"], totals["answered"], totals["items"]) == (1, 1, {f"{FICHE.id}/3": 1})
    assert totals["prompt_tokens"] + totals["completion_tokens"] == answer.usage.total_tokens


@pytest.mark.parametrize("kind", ["json_object", "json_schema"])
def test_any_other_chat_follows_the_response_format(client: OpenAI, kind: str) -> None:
    schema = {
        "type": "object",
        "properties": {
            "colour": {"enum": ["red", "blue"]},
            "sizes": {"type": "array", "items": {"$ref": "#/$defs/size"}, "minItems": 2},
            "note": {"anyOf": [{"type": "null"}, {"type": "string"}]},
        },
        "required": ["colour", "sizes", "note"],
        "additionalProperties": False,
        "$defs": {"size": {"type": "integer", "minimum": 3}},
    }
    response_format: Any = {"type": kind}
    if kind == "json_schema":
        response_format["json_schema"] = {"name": "thing", "strict": True, "schema": schema}
    answer = client.chat.completions.create(
        model=MODEL, messages=CHAT, response_format=response_format
    )
    content = json.loads(answer.choices[0].message.content or "")
    assert content == (
        {"colour": "red", "sizes": [3, 3], "note": None} if kind == "json_schema" else content
    )
    assert isinstance(content, dict)


def test_an_unknown_tool_is_called_and_its_result_used(client: OpenAI) -> None:
    first = client.chat.completions.create(
        model=MODEL, messages=CHAT, tools=[WEATHER], tool_choice="required"
    )
    assert first.choices[0].finish_reason == "tool_calls"
    calls = first.choices[0].message.tool_calls or []
    assert [
        (call.function.name, json.loads(call.function.arguments))
        for call in calls
        if call.type == "function"
    ] == [("weather", {"town": "x", "days": 0})]
    result = {"role": "tool", "tool_call_id": calls[0].id, "content": "rain"}
    results: Any = [*CHAT, first.choices[0].message.model_dump(exclude_none=True), result]
    last = client.chat.completions.create(model=MODEL, messages=results, tools=[WEATHER])
    assert (last.choices[0].finish_reason, last.choices[0].message.tool_calls) == ("stop", None)
    named: Any = {"type": "function", "function": {"name": "weather"}}
    again = client.chat.completions.create(
        model=MODEL, messages=results, tools=[WEATHER], tool_choice=named
    )
    assert again.choices[0].finish_reason == "tool_calls"
    never = client.chat.completions.create(
        model=MODEL, messages=CHAT, tools=[WEATHER], tool_choice="none"
    )
    assert never.choices[0].message.tool_calls is None


@pytest.mark.parametrize("several", [True, False])
def test_with_tools_the_model_searches_reads_and_then_judges(
    client: OpenAI, url: str, several: bool
) -> None:
    messages: Any = [{"role": "user", "content": tool_prompt(WITHDRAWAL)}]
    called: list[str] = []
    for choice in ("required", "auto", "auto", "auto"):
        answer = client.chat.completions.create(
            model=MODEL,
            messages=messages,
            tools=[_tool("searchTranscript"), _tool("getTranscriptChunks")],
            tool_choice=choice,
            parallel_tool_calls=several,
        )
        message = answer.choices[0].message
        if not message.tool_calls:
            break
        called += [call.function.name for call in message.tool_calls]
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls:
            messages.append(
                {
                    "role": "tool",
                    "tool_call_id": call.id,
                    "content": json.dumps(_result(call.function)),
                }
            )
    assert called == ["searchTranscript"] * (2 if several else 1) + ["getTranscriptChunks"]
    finding = Finding.model_validate_json(message.content or "")
    assert [point.statut for point in finding.points_controle] == ["PRESENT", "ABSENT"]
    citation = finding.points_controle[0].citations[0]
    assert citation.texte in chunks(FICHE)[citation.recording_index, citation.chunk_index]
    assert items(url) == {"?/3": 1, f"{FICHE.id}/3": 2}
    assert model_totals(url)["items"] == {f"{FICHE.id}/3": 1}


def _tool(name: str) -> Any:
    return {
        "type": "function",
        "function": {"name": name, "parameters": {"type": "object", "properties": {}}},
    }


def _result(function: Any) -> dict[str, object]:
    texts = chunks(FICHE)
    url = f"https://example.test/recordings/{FICHE.recordings[0].call_id}/x.mp3"
    locations = [
        {
            "recording_index": recording,
            "chunk_index": chunk,
            "recording_url": url,
            "start_timestamp": 61.5,
        }
        for recording, chunk in texts
    ]
    arguments = json.loads(function.arguments)
    if function.name == "searchTranscript":
        assert arguments["query"] in {"rétractation lune", "Droit de rétractation"}
        return {"matches": locations, "total_matches": len(locations)}
    wanted = {(one["recording_index"], one["chunk_index"]) for one in arguments["chunks"]}
    read = [
        {**location, "full_text": text}
        for location, (key, text) in zip(locations, texts.items(), strict=True)
        if key in wanted
    ]
    return {"chunks": read, "truncated": False}


def test_a_stream_has_the_same_text_and_the_usage_on_request(client: OpenAI, url: str) -> None:
    whole = audit(client)
    events = list(
        client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": prompt(FICHE, WITHDRAWAL)}],
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    text = "".join(event.choices[0].delta.content or "" for event in events if event.choices)
    assert text == whole.choices[0].message.content
    assert len(events) > 5
    assert events[-2].choices[0].finish_reason == "stop"
    assert events[-1].usage == whole.usage
    assert model_totals(url)["prompt_tokens"] == 2 * whole.usage.prompt_tokens


def test_a_tool_call_can_be_streamed(client: OpenAI) -> None:
    with client.chat.completions.stream(
        model=MODEL, messages=CHAT, tools=[WEATHER], tool_choice="required"
    ) as stream:
        message = stream.get_final_completion().choices[0].message
    assert [call.function.name for call in message.tool_calls or []] == ["weather"]


def test_models_can_be_listed_and_shown(client: OpenAI) -> None:
    assert MODEL in [model.id for model in client.models.list()]
    assert client.models.retrieve(MODEL).owned_by == "simulator"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-99")
