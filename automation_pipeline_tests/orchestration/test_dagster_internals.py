"""The parts of Dagster's private modules that this system relies on. A test that fails after an
upgrade of Dagster names the part that has changed. `test_code_server.py` covers `code_server_fault`."""

import inspect
import os
import signal

import dagster as dg
import pytest
from dagster._grpc.types import ExecuteStepArgs
from dagster._serdes import pack_value
from dagster_celery.core_execution_loop import core_celery_execution_loop
from dagster_celery.executor import CeleryExecutor, _submit_task

from automation_pipeline.orchestration.dagster_internals import (
    ExecutionPlan,
    PlanOrchestrationContext,
    RetryMode,
    is_interrupt,
    send_interrupt,
    unpack_step,
)

JOB = dg.build_reconstructable_job(
    "automation_pipeline.orchestration.processes", "job_named", ("audit_fiche",)
)


@dg.op
def breaks(context: dg.OpExecutionContext) -> None:
    if context.run.tags["how"] == "interrupt":
        os.kill(os.getpid(), signal.SIGINT)
        while True:
            signal.pause()
    raise OSError("own error")


@dg.job
def broken() -> None:
    breaks()


@pytest.mark.parametrize(("how", "interrupted"), [("interrupt", True), ("error", False)])
def test_an_interrupted_step_is_distinguished_from_a_failed_one(
    how: str, interrupted: bool
) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        try:
            run = broken.execute_in_process(
                instance=instance, tags={"how": how}, raise_on_error=False
            ).dagster_run
        except BaseException:  # noqa: BLE001  the interrupt goes on to the caller
            [run] = instance.get_runs()
        [failure] = instance.all_logs(run.run_id, of_type=dg.DagsterEventType.STEP_FAILURE)
    assert failure.dagster_event is not None
    assert is_interrupt(failure.dagster_event.step_failure_data) == interrupted


def test_a_run_that_ended_elsewhere_interrupts_the_process_that_waits_for_its_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    received: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: received.append(number))
    try:
        send_interrupt()
    finally:
        signal.signal(signal.SIGINT, before)
    assert received == [signal.SIGINT]


def test_an_executor_gets_the_run_the_instance_and_the_steps() -> None:
    assert {"run_id", "instance", "dagster_run"} <= set(dir(PlanOrchestrationContext))
    assert "step_keys_to_execute" in dir(ExecutionPlan)
    assert list(inspect.signature(dg.Executor.execute).parameters) == [
        "self",
        "plan_context",
        "execution_plan",
    ]


def test_the_celery_executor_accepts_a_retry_mode_and_a_step_function() -> None:
    executor = CeleryExecutor(RetryMode.ENABLED, broker="memory://", backend="cache+memory://")
    assert executor.retries is RetryMode.ENABLED
    assert "step_execution_fn" in inspect.signature(core_celery_execution_loop).parameters


def test_a_step_is_submitted_with_what_the_loop_over_celery_passes() -> None:
    assert list(inspect.signature(_submit_task).parameters) == [
        "app",
        "plan_context",
        "step",
        "queue",
        "priority",
        "known_state",
    ]


def test_the_message_of_a_step_names_its_run_its_steps_and_its_instance() -> None:
    with dg.instance_for_test() as instance:
        packed = pack_value(
            ExecuteStepArgs(
                job_origin=JOB.get_python_origin(),
                run_id="d-1",
                step_keys_to_execute=["fetch"],
                instance_ref=instance.get_ref(),
            )
        )
        step_args = unpack_step(packed)  # type: ignore[arg-type]
        assert (step_args.run_id, step_args.step_keys_to_execute) == ("d-1", ["fetch"])
        with dg.DagsterInstance.from_ref(step_args.instance_ref) as same:  # type: ignore[arg-type]
            assert same.root_directory == instance.root_directory
