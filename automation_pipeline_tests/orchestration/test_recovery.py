"""Recovery decisions as a table, and detection of lost processes."""

from dagster import DagsterRunStatus

from automation_pipeline.automation.models.runs import RunStatus
from automation_pipeline.orchestration.recovery import (
    Decision,
    Engine,
    Facts,
    decide,
    is_process_lost,
)

LOST_AFTER = 25.0
RUNNING, PENDING = RunStatus.RUNNING, RunStatus.PENDING
D, E = Decision, Engine

RULES = [
    ("it works", Facts(RUNNING, E.WORKS, silent_seconds=900), D.LEAVE),
    (
        "it is queued, for however long",
        Facts(PENDING, E.WAITS, silent_seconds=9000, request="waiting"),
        D.LEAVE,
    ),
    (
        "the next launch waits for Dagster",
        Facts(RUNNING, None, silent_seconds=9000, request="waiting"),
        D.LEAVE,
    ),
    ("filed a moment ago", Facts(PENDING, None, silent_seconds=1, request="waiting"), D.LEAVE),
    ("lost before its first attempt", Facts(PENDING, E.CRASHED, request="waiting"), D.REQUEST),
    ("lost at work", Facts(RUNNING, E.CRASHED), D.REQUEST),
    ("lost, without a request", Facts(RUNNING, E.CRASHED, request=None), D.REQUEST),
    (
        "of a job execute elsewhere, alive",
        Facts(RUNNING, None, silent_seconds=24, request=None),
        D.LEAVE,
    ),
    (
        "of a job execute elsewhere, silent",
        Facts(RUNNING, None, silent_seconds=26, request=None),
        D.REQUEST,
    ),
    ("Dagster has deleted its run", Facts(RUNNING, None, silent_seconds=26), D.REQUEST),
    ("its request was refused", Facts(PENDING, None, silent_seconds=1, request="refused"), D.FAIL),
    ("a step failed", Facts(RUNNING, E.FAILED), D.FAIL),
    ("opening failed", Facts(PENDING, E.FAILED, request="waiting"), D.FAIL),
    ("terminated by a person", Facts(RUNNING, E.CANCELED), D.CANCEL),
    ("terminated while it was queued", Facts(PENDING, E.CANCELED, request="waiting"), D.CANCEL),
    ("it is closing", Facts(RUNNING, E.SUCCEEDED, silent_seconds=2), D.LEAVE),
    ("nothing closed it", Facts(RUNNING, E.SUCCEEDED, silent_seconds=26), D.FAIL),
    ("the code server restarts", Facts(PENDING, E.NEVER_STARTED, engine_seconds=14), D.LEAVE),
    ("the code server is back", Facts(PENDING, E.NEVER_STARTED, engine_seconds=16), D.REQUEST),
    *(
        (
            f"launch {launches} waits {pause} seconds",
            Facts(PENDING, E.NEVER_STARTED, engine_seconds=seconds, launches=launches),
            decision,
        )
        for launches, pause in ((1, 15), (2, 30), (3, 60), (5, 240), (6, 300), (49, 300))
        for seconds, decision in ((pause, D.LEAVE), (pause + 1, D.REQUEST))
    ),
    ("it can never be launched", Facts(PENDING, E.NEVER_STARTED, launches=50), D.FAIL),
    ("alive at the limit", Facts(RUNNING, None, silent_seconds=LOST_AFTER), D.LEAVE),
    ("closing at the limit", Facts(RUNNING, E.SUCCEEDED, silent_seconds=LOST_AFTER), D.LEAVE),
    ("refused after an attempt", Facts(RUNNING, None, request="refused"), D.LEAVE),
    ("cancelled while it was queued", Facts(RunStatus.CANCELLED, E.WAITS), D.TERMINATE),
    ("cancelled at work", Facts(RunStatus.CANCELLED, E.WORKS), D.TERMINATE),
    ("cancelled and stopped", Facts(RunStatus.CANCELLED, E.CANCELED), D.LEAVE),
    ("completed, its process ends", Facts(RunStatus.COMPLETED, E.WORKS), D.LEAVE),
]


def test_the_recovery_decision_for_each_state_of_a_run() -> None:
    wrong = {
        name: decide(facts, LOST_AFTER)
        for name, facts, expected in RULES
        if decide(facts, LOST_AFTER) is not expected
    }
    assert wrong == {}


S = DagsterRunStatus


def test_the_process_of_a_dagster_run_is_lost_after_its_silence_limit() -> None:
    rules = [
        (S.STARTED, 25, 25, False),
        (S.STARTING, 50, 25, False),
        (S.STARTING, 45, 5, False),
        (S.STARTED, 26, 25, True),
        (S.CANCELING, 26, 25, True),
        (S.STARTING, 49, 25, False),
        (S.STARTING, 51, 25, True),
        (S.STARTING, 44, 5, False),
        (S.STARTING, 46, 5, True),
        (S.QUEUED, 9000, 25, False),
        (S.NOT_STARTED, 9000, 25, False),
    ]
    assert [rule for rule in rules if is_process_lost(*rule[:3]) is not rule[3]] == []
