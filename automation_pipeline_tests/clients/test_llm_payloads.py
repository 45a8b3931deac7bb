"""Conversion between questions and replies and the chat completions format."""

import json
from typing import Any

from automation_pipeline.audits.models.chat import (
    Message,
    Question,
    Reply,
    Role,
    Tool,
    ToolCall,
    ToolChoice,
    Usage,
)
from automation_pipeline.clients.llm import FILTERED, CompletionPayload, question_json
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.clients.test_llm import QUESTION, SCHEMA, completion

SEARCH = Tool("searchTranscript", "Finds passages.", {"type": "object", "properties": {}})
CALL = ToolCall("call_7", "searchTranscript", '{"query": "mutuelle"}')
WIRE_CALL = {
    "id": "call_7",
    "type": "function",
    "function": {"name": CALL.name, "arguments": CALL.arguments},
}


def sent(question: Question, temperature: float | None = None) -> dict[str, Any]:
    return json.loads(question_json(question, "gpt-4.1", temperature))


def test_a_question_is_sent_with_its_schema_and_no_unset_options() -> None:
    assert sent(QUESTION) == {
        "model": "gpt-4.1",
        "messages": [
            {"role": "system", "content": "Tu audites."},
            {"role": "user", "content": "Étape 1"},
        ],
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "audit_step", "strict": True, "schema": SCHEMA.schema},
        },
    }


@every_case("temperature", [0.0, 0.7])
def test_a_configured_temperature_is_sent(temperature: float) -> None:
    assert sent(QUESTION, temperature)["temperature"] == temperature


@every_case(
    ("tools", "choice", "chosen", "has_schema"),
    [
        ((), ToolChoice.NONE, None, True),
        ((), ToolChoice.REQUIRED, None, True),
        ((SEARCH,), ToolChoice.AUTO, "auto", True),
        ((SEARCH,), ToolChoice.NONE, "none", True),
        ((SEARCH,), ToolChoice.REQUIRED, "required", False),
    ],
)
def test_tool_choice_needs_tools_and_a_required_choice_omits_the_schema(
    tools: tuple[Tool, ...], choice: ToolChoice, chosen: str | None, has_schema: bool
) -> None:
    document = sent(Question(QUESTION.messages, SCHEMA, tools, choice))
    assert (document.get("tool_choice"), "response_format" in document) == (chosen, has_schema)
    assert [tool["function"]["strict"] for tool in document.get("tools", [])] == [True] * len(tools)
    assert "parallel_tool_calls" not in document


def test_calls_and_results_of_tools_are_sent_in_the_providers_format() -> None:
    result = (
        Message(Role.ASSISTANT, "", (CALL,)),
        Message(Role.TOOL, '{"matches": []}', tool_call_id="call_7"),
    )
    document = sent(Question(result, SCHEMA, (SEARCH,), ToolChoice.AUTO))
    assert document["messages"] == [
        {"role": "assistant", "content": None, "tool_calls": [WIRE_CALL]},
        {"role": "tool", "content": '{"matches": []}', "tool_call_id": "call_7"},
    ]
    (tool,) = document["tools"]
    assert (
        tool["function"].items() >= {"name": SEARCH.name, "description": SEARCH.description}.items()
    )
    assert (tool["type"], tool["function"]["parameters"]) == ("function", SEARCH.parameters)


def test_a_lone_surrogate_is_sent_as_a_question_mark() -> None:
    document = sent(Question((Message(Role.USER, "oui \ud83d non"),), SCHEMA))
    assert document["messages"][0]["content"] == "oui ? non"


BILL = {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15}


@every_case(
    ("document", "reply"),
    [
        (completion(usage=BILL, content='{"a": 1}'), Reply('{"a": 1}', Usage(12, 3))),
        (completion(), Reply("{}", Usage())),
        (completion(content=None, tool_calls=[WIRE_CALL]), Reply("", Usage(), (CALL,))),
        (completion(content="", tool_calls=[]), Reply("", Usage())),
        (completion(tool_calls=None, refusal=""), Reply("{}", Usage())),
        (completion(content=None, refusal="I cannot."), Reply("", Usage(), refusal="I cannot.")),
        (completion("length", content='{"a'), Reply('{"a', Usage(), is_cut=True)),
        (completion("content_filter", content=None), Reply("", Usage(), refusal=FILTERED)),
        (
            completion("content_filter", refusal="Not that."),
            Reply("{}", Usage(), refusal="Not that."),
        ),
        (completion(content="a\0b"), Reply("ab", Usage())),
        (completion(content='{"a": "x\\u0000y"}'), Reply('{"a": "xy"}', Usage())),
        (
            completion(usage={"prompt_tokens": 7, "completion_tokens": None}),
            Reply("{}", Usage(7, 0)),
        ),
        (
            completion(usage={"prompt_tokens": -7, "completion_tokens": 10**30}),
            Reply("{}", Usage()),
        ),
        (completion(usage={"prompt_tokens": True, "completion_tokens": "3"}), Reply("{}", Usage())),
        (completion(usage=[12, 3]), Reply("{}", Usage())),
        (
            completion(reasoning="hm", annotations=[]) | {"system_fingerprint": None},
            Reply("{}", Usage()),
        ),
    ],
)
def test_a_completion_becomes_a_reply(document: object, reply: Reply) -> None:
    assert CompletionPayload.model_validate_json(json.dumps(document)).to_reply() == reply
