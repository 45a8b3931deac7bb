"""What agents may say, field by field."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import JsonModel, parse
from automation_pipeline.org_jobs.models.agents import (
    MOST_RESULT_BYTES,
    ClaimInput,
    Greeting,
    ProgressReport,
    agent_name,
    is_agent,
    read_result,
)
from automation_pipeline.org_jobs.models.payloads import DEEPEST
from automation_pipeline_tests.tables import every_case

OF = {"attemptNo": 1, "leaseToken": 7}


def deep(levels: int) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for _ in range(levels):
        made = {"a": made}
    return made


def sized(size: int) -> dict[str, str]:
    return {"a": "x" * (size - len('{"a": ""}'))}


@every_case(
    ("given", "field"),
    [
        ({"attemptNo": 0}, "attemptNo"),
        ({"attemptNo": "1"}, "attemptNo"),
        ({"attemptNo": None}, "attemptNo"),
        ({"leaseToken": 0}, "leaseToken"),
        ({"leaseToken": 2**63}, "leaseToken"),
        ({"status": "done"}, "status"),
        ({"status": None}, "status"),
        ({"result": "well"}, "result"),
        ({"result": [1]}, "result"),
        ({"result": sized(MOST_RESULT_BYTES + 1)}, "result"),
        ({"result": {"a": ["\0"]}}, "result"),
        ({"result": {"\ud800": 1}}, "result"),
        ({"result": {"a": float("inf")}}, "result"),
        ({"result": deep(DEEPEST + 1)}, "result"),
        ({"result": {"a": [deep(DEEPEST)]}}, "result"),
        ({"result": deep(5000)}, "result"),
        ({"status": "failed", "errorCode": "disk_full"}, "errorCode"),
        ({"status": "failed", "errorCode": "E" * 41}, "errorCode"),
        ({"status": "failed", "errorCode": ""}, "errorCode"),
        ({"status": "failed", "errorCode": "E\n"}, "errorCode"),
        ({"errorCode": "DISK_FULL"}, "errorCode"),
        ({"error": "No."}, "error"),
        ({"status": "failed", "error": "x" * 2001}, "error"),
        ({"logRef": "x" * 1001}, "logRef"),
        ({"logRef": "\0"}, "logRef"),
        ({"attempt_no": 1}, "attempt_no"),
    ],
)
def test_a_result_that_says_something_else_is_refused_by_the_field(
    given: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidInputError) as refused:
        read_result({**OF, "status": "success", **given})
    assert [name for name, _ in refused.value.fields] == [field]


@every_case(
    "given",
    [
        {"status": "success"},
        {"status": "success", "result": sized(MOST_RESULT_BYTES), "errorCode": None, "error": None},
        {"status": "failed", "errorCode": "E" * 40, "error": "x" * 2000, "result": {"a": None}},
        {"status": "failed", "errorCode": "ANY_CODE_AT_ALL"},
        {"status": "success", "result": deep(DEEPEST)},
        {"status": "cancelled", "error": "It was told to."},
    ],
)
def test_a_result_may_say_this(given: dict[str, Any]) -> None:
    assert read_result({**OF, **given}).status == given["status"]


@every_case("missing", ["attemptNo", "leaseToken", "status"])
def test_what_a_result_needs_is_asked_for(missing: str) -> None:
    whole = {**OF, "status": "success"}
    with pytest.raises(InvalidInputError) as refused:
        read_result({name: value for name, value in whole.items() if name != missing})
    assert refused.value.fields == ((missing, "is required"),)


@every_case(
    ("model", "given", "field"),
    [
        (ProgressReport, {**OF, "percent": -1}, "percent"),
        (ProgressReport, {**OF, "percent": 100.1}, "percent"),
        (ProgressReport, {**OF, "percent": "50"}, "percent"),
        (ProgressReport, {**OF, "percent": True}, "percent"),
        (ProgressReport, {**OF, "percent": float("nan")}, "percent"),
        (ProgressReport, {**OF, "message": "x" * 1001}, "message"),
        (ProgressReport, {**OF, "status": "running"}, "status"),
        (ProgressReport, {"attemptNo": 1}, "leaseToken"),
        (ClaimInput, {"most": 0}, "most"),
        (ClaimInput, {"most": 21}, "most"),
        (ClaimInput, {"most": 1.5}, "most"),
        (Greeting, {"agentVersion": "x" * 101}, "agentVersion"),
        (Greeting, {"agentVersion": 1}, "agentVersion"),
    ],
)
def test_whatever_else_they_send_is_refused_by_the_field(
    model: type[JsonModel], given: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidInputError) as refused:
        parse(model, given, "Invalid")
    assert [name for name, _ in refused.value.fields] == [field]


@every_case("percent", [0, 0.5, 50, 100])
def test_whole_and_broken_percents_are_taken(percent: float) -> None:
    assert parse(ProgressReport, {**OF, "percent": percent}, "").percent == percent


@given(st.text())
def test_an_agent_is_known_by_its_name_whatever_its_host_is_called(host: str) -> None:
    assert is_agent(agent_name(host))
    assert not is_agent(f"user:{host}")
