"""What becomes of an agent's word: as a table of all that can have happened meanwhile."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.org_jobs.models.agents import AgentStatus, ResultReport
from automation_pipeline.org_jobs.models.states import OrgJobsRunState
from automation_pipeline.org_jobs.rules.agents import (
    UNWANTED_CANCEL,
    PastAttempt,
    ReportVerdict,
    attempt_end,
    lost_lease_message,
    refusal_message,
    verdict_on,
)
from automation_pipeline_tests.tables import every_case

SUCCESS, FAILED, CANCELLED = (
    OrgJobsRunState.SUCCESS,
    OrgJobsRunState.FAILED,
    OrgJobsRunState.CANCELLED,
)
REPORTED = {
    status: PastAttempt(status, None, was_reported=True) for status in (SUCCESS, FAILED, CANCELLED)
}
GIVEN_UP = {
    status: PastAttempt(status, "STALE", was_reported=False) for status in (FAILED, CANCELLED)
}
UNWANTED = PastAttempt(FAILED, UNWANTED_CANCEL, was_reported=True)


def a_report(
    status: str = "success", attempt_no: int = 1, token: int = 1, **said: Any
) -> ResultReport:
    return ResultReport(
        attempt_no=attempt_no, lease_token=token, status=AgentStatus(status), **said
    )


@every_case(
    ("report", "attempt_no", "token", "past", "verdict"),
    [
        # It ended the run itself.
        (a_report("success"), 1, 1, REPORTED[SUCCESS], ReportVerdict.SAME),
        (a_report("failed"), 1, 1, REPORTED[SUCCESS], ReportVerdict.OTHER),
        (a_report("cancelled"), 1, 1, REPORTED[SUCCESS], ReportVerdict.OTHER),
        (a_report("cancelled"), 1, 1, REPORTED[CANCELLED], ReportVerdict.SAME),
        (a_report("failed"), 1, 1, REPORTED[CANCELLED], ReportVerdict.OTHER),
        # It failed, and is tried again; somebody may have taken that.
        (a_report("failed"), 2, 1, REPORTED[FAILED], ReportVerdict.SAME),
        (a_report("failed"), 2, 2, REPORTED[FAILED], ReportVerdict.SAME),
        (a_report("success"), 2, 2, REPORTED[FAILED], ReportVerdict.OTHER),
        # What it stopped by itself has failed, and to say so again is the same.
        (a_report("cancelled"), 2, 1, UNWANTED, ReportVerdict.SAME),
        (a_report("success"), 2, 1, UNWANTED, ReportVerdict.OTHER),
        (a_report("cancelled"), 2, 1, REPORTED[FAILED], ReportVerdict.OTHER),
        # It was given up.
        (a_report("success"), 2, 1, GIVEN_UP[FAILED], ReportVerdict.LATE),
        (a_report("failed"), 2, 2, GIVEN_UP[FAILED], ReportVerdict.LATE),
        (a_report("cancelled"), 1, 1, GIVEN_UP[CANCELLED], ReportVerdict.LATE),
        (a_report("success"), 1, 1, GIVEN_UP[CANCELLED], ReportVerdict.LATE),
        # It was claimed only, and is free again, or somebody else's.
        (a_report("success"), 1, 1, None, ReportVerdict.UNCLAIMED),
        (a_report("success"), 1, 2, None, ReportVerdict.STRANGE),
        (a_report("success", attempt_no=3), 2, 2, None, ReportVerdict.UNCLAIMED),
        (a_report("success", attempt_no=3, token=2), 2, 2, None, ReportVerdict.UNCLAIMED),
        # Tokens that nobody was given.
        (a_report("success", token=2), 1, 1, REPORTED[SUCCESS], ReportVerdict.STRANGE),
        (a_report("success", token=1), 1, 2, REPORTED[SUCCESS], ReportVerdict.STRANGE),
        (a_report("failed", token=9), 2, 3, GIVEN_UP[FAILED], ReportVerdict.STRANGE),
    ],
)
def test_what_comes_after_the_end_is_the_same_something_else_or_too_late(
    report: ResultReport,
    attempt_no: int,
    token: int,
    past: PastAttempt | None,
    verdict: ReportVerdict,
) -> None:
    assert verdict_on(report, attempt_no, token, past) is verdict


@given(st.sampled_from(AgentStatus), st.sampled_from(AgentStatus), st.booleans(), st.integers(1, 3))
def test_only_what_was_said_before_is_the_same(
    first: AgentStatus, second: AgentStatus, is_cancel_wanted: bool, attempt_no: int
) -> None:
    end = attempt_end(a_report(first, attempt_no), is_cancel_wanted=is_cancel_wanted)
    past = PastAttempt(end.status, end.error_code, was_reported=True)
    verdict = verdict_on(a_report(second, attempt_no), attempt_no, 1, past)
    was_unwanted = (
        end.error_code == UNWANTED_CANCEL and second is AgentStatus.FAILED
    )  # as which it counts
    is_same = first is second or was_unwanted
    assert verdict is (ReportVerdict.SAME if is_same else ReportVerdict.OTHER)


@every_case(
    ("report", "is_wanted", "status", "code", "error"),
    [
        (a_report("success"), False, SUCCESS, None, None),
        (a_report("success"), True, SUCCESS, None, None),
        (a_report("failed"), False, FAILED, "FAILED", "Its agent does not say why it failed."),
        (
            a_report("failed", error_code="DISK_FULL", error="Full."),
            True,
            FAILED,
            "DISK_FULL",
            "Full.",
        ),
        (a_report("cancelled"), True, CANCELLED, None, "Its agent has stopped it, as was wanted."),
        (a_report("cancelled", error="Halfway."), True, CANCELLED, None, "Halfway."),
        (
            a_report("cancelled"),
            False,
            FAILED,
            UNWANTED_CANCEL,
            "Its agent stopped it, though nobody wanted that.",
        ),
    ],
)
def test_how_an_attempt_ends_by_its_agents_word(
    report: ResultReport,
    is_wanted: bool,
    status: OrgJobsRunState,
    code: str | None,
    error: str | None,
) -> None:
    end = attempt_end(report, is_cancel_wanted=is_wanted)
    assert (end.status, end.error_code, end.error) == (status, code, error)


@every_case("status", AgentStatus)
def test_results_and_logs_are_kept_however_it_ended(status: AgentStatus) -> None:
    end = attempt_end(a_report(status, result={"a": 1}, log_ref="/log/1"), is_cancel_wanted=True)
    assert (end.result, end.log_ref) == ({"a": 1}, "/log/1")


@every_case("verdict", ReportVerdict)
@every_case("past", [None, REPORTED[SUCCESS], GIVEN_UP[FAILED]])
def test_every_refusal_says_which_attempt_and_to_stop(
    verdict: ReportVerdict, past: PastAttempt | None
) -> None:
    words = refusal_message(verdict, 12, 3, past)
    assert words.startswith("Attempt 3 of job run 12 ")
    assert words.endswith(": stop working on it, and claim again.")


def test_a_late_one_is_told_what_it_was_given_up_for() -> None:
    assert "was given up (STALE)" in refusal_message(ReportVerdict.LATE, 12, 1, GIVEN_UP[FAILED])
    assert "is not yours any more" in lost_lease_message(12, 1)
