"""What the end of an attempt means for its run: tried again, or over."""

from datetime import UTC, datetime, timedelta
from itertools import product
from random import Random
from typing import Any

import pytest

from automation_pipeline.core.state_machine import IllegalMoveError
from automation_pipeline.org_jobs.domain.endings import (
    AttemptEnd,
    RunEnd,
    cancelled,
    expired,
    failed,
    run_end,
    stale,
    succeeded,
    too_long,
)
from automation_pipeline.org_jobs.domain.job_type import Performer
from automation_pipeline.org_jobs.domain.retry_policy import RetryPolicy
from automation_pipeline.org_jobs.domain.states import JOB_RUN, RunState
from automation_pipeline_tests.tables import every_case

NOW = datetime(2026, 5, 4, 10, tzinfo=UTC)
AGAIN = RunEnd(RunState.PENDING, NOW + timedelta(seconds=2))


def ended(end: AttemptEnd, **said: Any) -> RunEnd:
    facts: dict[str, Any] = {
        "frm": RunState.RUNNING,
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
        (succeeded(), {}, RunEnd(RunState.SUCCESS)),
        (failed("Broken."), {}, AGAIN),
        (failed("Broken."), {"attempt_no": 2}, AGAIN),
        (failed("Broken."), {"attempt_no": 3}, RunEnd(RunState.FAILED)),
        (failed("Broken."), {"policy": RetryPolicy(max_retries=0)}, RunEnd(RunState.FAILED)),
        (failed("Wrong.", "VALIDATION"), {}, RunEnd(RunState.FAILED)),
        (failed("Broken."), {"is_cancel_wanted": True}, RunEnd(RunState.FAILED)),
        (stale(180), {}, AGAIN),
        (too_long(900), {}, AGAIN),
        (cancelled("Not needed."), {}, RunEnd(RunState.CANCELLED)),
        (cancelled(), {"frm": RunState.PENDING}, RunEnd(RunState.CANCELLED)),
        (expired(NOW, Performer.AGENT), {"frm": RunState.PENDING}, RunEnd(RunState.FAILED)),
    ],
)
def test_what_becomes_of_the_run(end: AttemptEnd, said: dict[str, Any], becomes: RunEnd) -> None:
    assert ended(end, **said) == becomes


ILLEGAL = [(frm, to) for frm, to in product(RunState, RunState) if not JOB_RUN.can_move(frm, to)]


@every_case(("frm", "to"), [pair for pair in ILLEGAL if pair[1] is not RunState.PENDING])
def test_an_end_that_its_state_does_not_allow_is_refused(frm: RunState, to: RunState) -> None:
    with pytest.raises(IllegalMoveError):
        ended(AttemptEnd(status=to, error_code="FAILED"), frm=frm)


def test_the_moves_that_are_forbidden() -> None:
    assert JOB_RUN.terminal == {RunState.SUCCESS, RunState.CANCELLED}
    assert not JOB_RUN.can_move(RunState.FAILED, RunState.SUCCESS)
    assert not JOB_RUN.can_move(RunState.PENDING, RunState.SUCCESS)
