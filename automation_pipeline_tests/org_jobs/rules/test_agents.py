"""Reports of agents: validation, and decisions about late or repeated reports."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import JsonModel, parse
from automation_pipeline.org_jobs.models.agents import (
    UNWANTED_CANCEL,
    AgentStatus,
    ClaimInput,
    Greeting,
    PastAttempt,
    ProgressReport,
    ReportVerdict,
    ResultReport,
    agent_name,
    attempt_end,
    is_agent,
    lost_lease_message,
    read_result,
    refusal_message,
    verdict_on,
)
from automation_pipeline.org_jobs.models.jobs import OrgJobsRunState
from automation_pipeline.org_jobs.models.payloads import DEEPEST
from automation_pipeline_tests.cases import every_case

ATTEMPT = {"attemptNo": 1, "leaseToken": 7}


def deep(levels: int) -> dict[str, Any]:
    created: dict[str, Any] = {}
    for _ in range(levels):
        created = {"a": created}
    return created


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
        ({"result": sized(64 * 1024 + 1)}, "result"),
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
def test_invalid_result_names_the_field(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        read_result({**ATTEMPT, "status": "success", **given})
    assert [name for name, _ in refused.value.fields] == [field]


@every_case(
    "given",
    [
        {"status": "success"},
        {"status": "success", "result": sized(64 * 1024), "errorCode": None, "error": None},
        {"status": "failed", "errorCode": "E" * 40, "error": "x" * 2000, "result": {"a": None}},
        {"status": "failed", "errorCode": "ANY_CODE_AT_ALL"},
        {"status": "success", "result": deep(DEEPEST)},
        {"status": "cancelled", "error": "Cancelled on request."},
    ],
)
def test_valid_results_are_accepted(given: dict[str, Any]) -> None:
    assert read_result({**ATTEMPT, **given}).status == given["status"]


@every_case("missing", ["attemptNo", "leaseToken", "status"])
def test_missing_fields_of_a_result_are_named(missing: str) -> None:
    whole = {**ATTEMPT, "status": "success"}
    with pytest.raises(InvalidInputError) as refused:
        read_result({name: value for name, value in whole.items() if name != missing})
    assert refused.value.fields == ((missing, "is required"),)


@every_case(
    ("model", "given", "field"),
    [
        (ProgressReport, {**ATTEMPT, "percent": -1}, "percent"),
        (ProgressReport, {**ATTEMPT, "percent": 100.1}, "percent"),
        (ProgressReport, {**ATTEMPT, "percent": "50"}, "percent"),
        (ProgressReport, {**ATTEMPT, "percent": True}, "percent"),
        (ProgressReport, {**ATTEMPT, "percent": float("nan")}, "percent"),
        (ProgressReport, {**ATTEMPT, "message": "x" * 1001}, "message"),
        (ProgressReport, {**ATTEMPT, "status": "running"}, "status"),
        (ProgressReport, {"attemptNo": 1}, "leaseToken"),
        (ClaimInput, {"most": 0}, "most"),
        (ClaimInput, {"most": 21}, "most"),
        (ClaimInput, {"most": 1.5}, "most"),
        (Greeting, {"agentVersion": "x" * 101}, "agentVersion"),
        (Greeting, {"agentVersion": 1}, "agentVersion"),
    ],
)
def test_other_invalid_messages_name_the_field(
    model: type[JsonModel], given: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidInputError) as refused:
        parse(model, given, "Invalid")
    assert [name for name, _ in refused.value.fields] == [field]


@every_case("percent", [0, 0.5, 50, 100])
def test_integer_and_fractional_percents_are_accepted(percent: float) -> None:
    assert parse(ProgressReport, {**ATTEMPT, "percent": percent}, "").percent == percent


@given(st.text())
def test_agent_name_is_recognised(host: str) -> None:
    assert is_agent(agent_name(host))
    assert not is_agent(f"user:{host}")


SUCCESS, FAILED, CANCELLED = (
    OrgJobsRunState.SUCCESS,
    OrgJobsRunState.FAILED,
    OrgJobsRunState.CANCELLED,
)
REPORTED = {
    status: PastAttempt(status, None, was_reported=True) for status in (SUCCESS, FAILED, CANCELLED)
}
ENDED_BY_SYSTEM = {
    status: PastAttempt(status, "STALE", was_reported=False) for status in (FAILED, CANCELLED)
}
UNWANTED = PastAttempt(FAILED, UNWANTED_CANCEL, was_reported=True)


def make_report(
    status: str = "success", attempt_no: int = 1, token: int = 1, **result: Any
) -> ResultReport:
    return ResultReport(
        attempt_no=attempt_no, lease_token=token, status=AgentStatus(status), **result
    )


@every_case(
    ("report", "attempt_no", "token", "past", "verdict"),
    [
        # The agent ended the run.
        (make_report("success"), 1, 1, REPORTED[SUCCESS], ReportVerdict.SAME),
        (make_report("failed"), 1, 1, REPORTED[SUCCESS], ReportVerdict.OTHER),
        (make_report("cancelled"), 1, 1, REPORTED[SUCCESS], ReportVerdict.OTHER),
        (make_report("cancelled"), 1, 1, REPORTED[CANCELLED], ReportVerdict.SAME),
        (make_report("failed"), 1, 1, REPORTED[CANCELLED], ReportVerdict.OTHER),
        # The attempt failed; the next attempt waits or is claimed.
        (make_report("failed"), 2, 1, REPORTED[FAILED], ReportVerdict.SAME),
        (make_report("failed"), 2, 2, REPORTED[FAILED], ReportVerdict.SAME),
        (make_report("success"), 2, 2, REPORTED[FAILED], ReportVerdict.OTHER),
        # A cancellation without a request counts as a failure; a repetition is accepted.
        (make_report("cancelled"), 2, 1, UNWANTED, ReportVerdict.SAME),
        (make_report("success"), 2, 1, UNWANTED, ReportVerdict.OTHER),
        (make_report("cancelled"), 2, 1, REPORTED[FAILED], ReportVerdict.OTHER),
        # The system ended the attempt.
        (make_report("success"), 2, 1, ENDED_BY_SYSTEM[FAILED], ReportVerdict.LATE),
        (make_report("failed"), 2, 2, ENDED_BY_SYSTEM[FAILED], ReportVerdict.LATE),
        (make_report("cancelled"), 1, 1, ENDED_BY_SYSTEM[CANCELLED], ReportVerdict.LATE),
        (make_report("success"), 1, 1, ENDED_BY_SYSTEM[CANCELLED], ReportVerdict.LATE),
        # The claim ended without a start; the run is free or claimed by another agent.
        (make_report("success"), 1, 1, None, ReportVerdict.UNCLAIMED),
        (make_report("success"), 1, 2, None, ReportVerdict.STRANGE),
        (make_report("success", attempt_no=3), 2, 2, None, ReportVerdict.UNCLAIMED),
        (make_report("success", attempt_no=3, token=2), 2, 2, None, ReportVerdict.UNCLAIMED),
        # Tokens that were never issued.
        (make_report("success", token=2), 1, 1, REPORTED[SUCCESS], ReportVerdict.STRANGE),
        (make_report("success", token=1), 1, 2, REPORTED[SUCCESS], ReportVerdict.STRANGE),
        (make_report("failed", token=9), 2, 3, ENDED_BY_SYSTEM[FAILED], ReportVerdict.STRANGE),
    ],
)
def test_decision_about_reports_after_the_end(
    report: ResultReport,
    attempt_no: int,
    token: int,
    past: PastAttempt | None,
    verdict: ReportVerdict,
) -> None:
    assert verdict_on(report, attempt_no, token, past) is verdict


@given(st.sampled_from(AgentStatus), st.sampled_from(AgentStatus), st.booleans(), st.integers(1, 3))
def test_only_an_equal_result_is_a_repetition(
    first: AgentStatus, second: AgentStatus, is_cancel_wanted: bool, attempt_no: int
) -> None:
    end = attempt_end(make_report(first, attempt_no), is_cancel_wanted=is_cancel_wanted)
    past = PastAttempt(end.status, end.error_code, was_reported=True)
    verdict = verdict_on(make_report(second, attempt_no), attempt_no, 1, past)
    # It was stored as a failure.
    was_unwanted = end.error_code == UNWANTED_CANCEL and second is AgentStatus.FAILED
    is_same = first is second or was_unwanted
    assert verdict is (ReportVerdict.SAME if is_same else ReportVerdict.OTHER)


@every_case(
    ("report", "is_requested", "status", "code", "error"),
    [
        (make_report("success"), False, SUCCESS, None, None),
        (make_report("success"), True, SUCCESS, None, None),
        (
            make_report("failed"),
            False,
            FAILED,
            "FAILED",
            "Its agent gave no reason for the failure.",
        ),
        (
            make_report("failed", error_code="DISK_FULL", error="Full."),
            True,
            FAILED,
            "DISK_FULL",
            "Full.",
        ),
        (make_report("cancelled"), True, CANCELLED, None, "Its agent stopped it on request."),
        (make_report("cancelled", error="Halfway."), True, CANCELLED, None, "Halfway."),
        (
            make_report("cancelled"),
            False,
            FAILED,
            UNWANTED_CANCEL,
            "Its agent stopped it without a request.",
        ),
    ],
)
def test_attempt_end_by_report(
    report: ResultReport,
    is_requested: bool,
    status: OrgJobsRunState,
    code: str | None,
    error: str | None,
) -> None:
    end = attempt_end(report, is_cancel_wanted=is_requested)
    assert (end.status, end.error_code, end.error) == (status, code, error)


@every_case("status", AgentStatus)
def test_result_and_log_are_kept_for_every_status(status: AgentStatus) -> None:
    end = attempt_end(make_report(status, result={"a": 1}, log_ref="/log/1"), is_cancel_wanted=True)
    assert (end.result, end.log_ref) == ({"a": 1}, "/log/1")


@every_case("verdict", ReportVerdict)
@every_case("past", [None, REPORTED[SUCCESS], ENDED_BY_SYSTEM[FAILED]])
def test_refusals_name_the_attempt_and_the_next_step(
    verdict: ReportVerdict, past: PastAttempt | None
) -> None:
    message = refusal_message(verdict, 12, 3, past)
    assert message.startswith("Attempt 3 of job run 12 ")
    assert message.endswith(": stop working on it, and claim again.")


def test_late_refusal_names_the_reason() -> None:
    assert "was ended by the system (STALE)" in refusal_message(
        ReportVerdict.LATE, 12, 1, ENDED_BY_SYSTEM[FAILED]
    )
    assert "is no longer yours" in lost_lease_message(12, 1)
