"""What the end of an attempt means for its run: tried again, or over."""

from datetime import UTC, datetime, timedelta
from itertools import product
from random import Random
from typing import Any

import pytest

from automation_pipeline.core.state_machine import IllegalMoveError
from automation_pipeline.org_jobs.models.jobs import (
    AttemptEnd,
    RetryPolicy,
    RunEnd,
    attempt_cancelled,
    attempt_failed,
    attempt_succeeded,
    attempt_too_long,
    run_end,
)
from automation_pipeline.org_jobs.models.states import JOB_RUN, OrgJobsRunState
from automation_pipeline_tests.tables import every_case

NOW = datetime(2026, 5, 4, 10, tzinfo=UTC)
AGAIN = RunEnd(OrgJobsRunState.PENDING, NOW + timedelta(seconds=2))


def ended(end: AttemptEnd, **said: Any) -> RunEnd:
    facts: dict[str, Any] = {
        "frm": OrgJobsRunState.RUNNING,
        "attempt_no": 1,
        "policy": RetryPolicy(),
        "window": None,
        "is_cancel_wanted": False,
        "now": NOW,
        "random": Random(1),
    }
    return run_end(end, **{**facts, **said})


@every_case(
    ("end", "said", "becomes"),
    [
        (attempt_succeeded(), {}, RunEnd(OrgJobsRunState.SUCCESS)),
        (attempt_failed("Broken."), {}, AGAIN),
        (attempt_failed("Broken."), {"attempt_no": 2}, AGAIN),
        (attempt_failed("Broken."), {"attempt_no": 3}, RunEnd(OrgJobsRunState.FAILED)),
        (
            attempt_failed("Broken."),
            {"policy": RetryPolicy(max_retries=0)},
            RunEnd(OrgJobsRunState.FAILED),
        ),
        (attempt_failed("Wrong.", "VALIDATION"), {}, RunEnd(OrgJobsRunState.FAILED)),
        (attempt_failed("Broken."), {"is_cancel_wanted": True}, RunEnd(OrgJobsRunState.FAILED)),
        (attempt_failed("Silent.", "STALE"), {}, AGAIN),
        (attempt_too_long(900), {}, AGAIN),
        (attempt_cancelled("Not needed."), {}, RunEnd(OrgJobsRunState.CANCELLED)),
        (attempt_cancelled(), {"frm": OrgJobsRunState.PENDING}, RunEnd(OrgJobsRunState.CANCELLED)),
        (
            attempt_failed("Late.", "EXPIRED"),
            {"frm": OrgJobsRunState.PENDING},
            RunEnd(OrgJobsRunState.FAILED),
        ),
    ],
)
def test_what_becomes_of_the_run(end: AttemptEnd, said: dict[str, Any], becomes: RunEnd) -> None:
    assert ended(end, **said) == becomes


ILLEGAL = [
    (frm, to)
    for frm, to in product(OrgJobsRunState, OrgJobsRunState)
    if not JOB_RUN.can_move(frm, to)
]


@every_case(("frm", "to"), [pair for pair in ILLEGAL if pair[1] is not OrgJobsRunState.PENDING])
def test_an_end_that_its_state_does_not_allow_is_refused(
    frm: OrgJobsRunState, to: OrgJobsRunState
) -> None:
    with pytest.raises(IllegalMoveError):
        ended(AttemptEnd(status=to, error_code="FAILED"), frm=frm)


def test_the_moves_that_are_forbidden() -> None:
    assert JOB_RUN.terminal == {OrgJobsRunState.SUCCESS, OrgJobsRunState.CANCELLED}
    assert not JOB_RUN.can_move(OrgJobsRunState.FAILED, OrgJobsRunState.SUCCESS)
    assert not JOB_RUN.can_move(OrgJobsRunState.PENDING, OrgJobsRunState.SUCCESS)
