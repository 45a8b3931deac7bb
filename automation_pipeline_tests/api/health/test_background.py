"""Background checks run concurrently, in isolation, and with a time limit."""

import threading
import time

from automation_pipeline.api.health import NOT_CONFIGURED, Check, Finding, State, findings_of
from automation_pipeline.core.errors import InvalidInputError, PermanentError, TransientError
from automation_pipeline_tests.cases import every_case


def answering(outcome: str | Exception | None) -> Check:
    def look() -> str | None:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return Check(look)


@every_case(
    ("outcome", "finding"),
    [
        ("it answers", Finding("it", State.OK, "it answers", required=True)),
        (None, Finding("it", State.NOT_SET, NOT_CONFIGURED, required=False)),
        (TransientError("It is away."), Finding("it", State.FAILED, "It is away.", required=True)),
        (PermanentError("Two\nlines"), Finding("it", State.FAILED, "Two lines", required=True)),
        (
            InvalidInputError("Bad", (("a", "is b"),)),
            Finding("it", State.FAILED, "Bad: a: is b", required=True),
        ),
        (
            KeyError("s3cret"),
            Finding("it", State.FAILED, "could not be checked (KeyError)", required=True),
        ),
    ],
)
def test_each_check_outcome_becomes_a_finding(
    outcome: str | Exception | None, finding: Finding
) -> None:
    assert findings_of({"it": answering(outcome)}) == (finding,)


@every_case(
    ("state", "required", "is_problem"),
    [
        (State.FAILED, True, True),
        (State.FAILED, False, False),
        (State.OK, True, False),
        (State.NOT_SET, False, False),
    ],
)
def test_only_a_failed_required_check_is_a_problem(
    state: State, required: bool, is_problem: bool
) -> None:
    assert Finding("it", state, "", required).is_problem is is_problem


def test_checks_run_concurrently_and_report_in_order() -> None:
    meeting = threading.Barrier(3)

    def meet() -> str:
        meeting.wait(timeout=30)
        return "met"

    found = findings_of({name: Check(meet, seconds=60) for name in ("one", "two", "three")})
    assert [(one.name, one.detail) for one in found] == [
        ("one", "met"),
        ("two", "met"),
        ("three", "met"),
    ]


def test_a_hanging_check_fails_without_affecting_the_others() -> None:
    forever = threading.Event()
    started = time.monotonic()
    hanging = Check(lambda: str(forever.wait(600)), seconds=0.05)
    found = findings_of({"slow": hanging, "quick": Check(lambda: "here")})
    forever.set()
    assert found[0] == Finding("slow", State.FAILED, "did not answer within 0.05 s", required=True)
    assert (found[1].detail, time.monotonic() - started < 60) == ("here", True)
