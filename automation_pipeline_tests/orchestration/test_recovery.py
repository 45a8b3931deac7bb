"""Recovery decisions as a table, and detection of lost processes."""

from types import SimpleNamespace
from typing import Any

import dagster as dg
from dagster import DagsterRun, DagsterRunStatus
from dagster._core.errors import DagsterExecutionInterruptedError

from automation_pipeline.automation.models.runs import RunStatus
from automation_pipeline.orchestration.recovery import (
    Decision,
    Ending,
    Engine,
    Facts,
    decide,
    ending_of,
    first_own_error,
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


@dg.op(config_schema=str)
def break_as_configured(context: dg.OpExecutionContext) -> None:
    match context.op_config:
        case "failure":
            raise dg.Failure("The fiche does not exist.", allow_retries=False)
        case "exception":
            raise ValueError("a bug")
        case "interrupt":
            raise DagsterExecutionInterruptedError
        case _:
            return


@dg.job
def broken() -> None:
    break_as_configured()


def ending_of_job(instance: dg.DagsterInstance, kind: str) -> Ending:
    run_config = {"ops": {"break_as_configured": {"config": kind}}}
    result = broken.execute_in_process(
        run_config=run_config, instance=instance, raise_on_error=False
    )
    record = instance.get_run_record_by_id(result.run_id)
    assert record
    return ending_of(record, instance)


def test_the_ending_of_a_dagster_run_has_the_message_of_its_step() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        assert ending_of_job(instance, "none") == Ending(
            Engine.SUCCEEDED, "The Dagster run succeeded without ending the automation run"
        )
        assert ending_of_job(instance, "failure") == Ending(
            Engine.FAILED, "The fiche does not exist."
        )
        failed = ending_of_job(instance, "exception")
        assert failed.engine is Engine.FAILED
        assert "Error occurred while executing op" in failed.reason


def test_the_ending_of_a_dagster_run_without_a_step_failure() -> None:
    endings = {}
    cases = {
        "waiting": (S.NOT_STARTED, {}, None),
        "starting": (S.STARTING, {}, None),
        "started": (S.STARTED, {}, None),
        "canceling": (S.CANCELING, {}, None),
        "canceled": (S.CANCELED, {}, None),
        "never started": (S.FAILURE, {}, None),
        "crashed": (S.FAILURE, {}, 1.0),
        "interrupted": (S.FAILURE, {"dagster/failure_reason": "UNEXPECTED_TERMINATION"}, 1.0),
    }
    with dg.DagsterInstance.ephemeral() as instance:
        for name, (status, tags, start_time) in cases.items():
            instance.add_run(DagsterRun("broken", run_id=name, status=status, tags=tags))
            record = instance.get_run_record_by_id(name)
            assert record
            endings[name] = ending_of(record._replace(start_time=start_time), instance)
    silent = "its process ended"
    assert endings == {
        "waiting": Ending(Engine.WAITS),
        "starting": Ending(Engine.WAITS),
        "started": Ending(Engine.WORKS),
        "canceling": Ending(Engine.WORKS),
        "canceled": Ending(Engine.CANCELED, "The run was terminated in Dagster"),
        "never started": Ending(Engine.NEVER_STARTED, silent),
        "crashed": Ending(Engine.CRASHED, silent),
        "interrupted": Ending(Engine.CANCELED, "`dagster job execute` was interrupted"),
    }


def test_a_step_that_crashed_or_was_interrupted_has_no_own_error() -> None:
    def failure(cls_name: str | None, description: str | None = None) -> Any:
        error = cls_name and SimpleNamespace(cls_name=cls_name, message=" words \n", causes=[])
        user = description and SimpleNamespace(description=description)
        data = SimpleNamespace(error=error, user_failure_data=user, error_source=None)
        return SimpleNamespace(step_failure_data=data)

    crash, interrupt = failure("ChildProcessCrashException"), failure(None)
    assert first_own_error([]) is None
    assert first_own_error([crash, interrupt]) is None
    assert first_own_error([crash, interrupt, failure("ValueError")]) == "words"
    assert first_own_error([failure("Failure", "a sentence")]) == "a sentence"
