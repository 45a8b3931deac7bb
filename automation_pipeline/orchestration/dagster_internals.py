"""Every use of Dagster's private modules. `test_dagster_internals.py` tests each one, so that a
test names what an upgrade of Dagster breaks."""

from typing import TYPE_CHECKING

from dagster._core.execution.context.system import PlanOrchestrationContext
from dagster._core.execution.plan.objects import ErrorSource, StepFailureData
from dagster._core.execution.plan.plan import ExecutionPlan
from dagster._core.execution.retries import RetryMode
from dagster._grpc.types import ExecuteStepArgs
from dagster._serdes import unpack_value
from dagster._utils import send_interrupt
from dagster_shared.serdes.serdes import JsonSerializableValue

if TYPE_CHECKING:
    from celery.result import AsyncResult

# The argument types of `dg.Executor.execute`. `send_interrupt` interrupts this process in the way
# in which Dagster terminates a run.
__all__ = ["ExecutionPlan", "PlanOrchestrationContext", "RetryMode", "send_interrupt"]


def is_interrupt(failure: StepFailureData) -> bool:
    """Whether the process of the step was interrupted, so that the step has no error of its own."""
    return failure.error_source is ErrorSource.INTERRUPT


def unpack_step(packed: JsonSerializableValue) -> ExecuteStepArgs:
    """The run, steps and instance in the message of a Celery task."""
    return unpack_value(packed, as_type=ExecuteStepArgs)


def submit_task(*step: object) -> "AsyncResult":
    """Send the Celery task of a step, as Dagster's Celery executor does."""
    from dagster_celery.executor import _submit_task  # noqa: PLC0415  # pyright: ignore[reportPrivateUsage]  Celery is heavy

    return _submit_task(*step)


def code_server_fault(port: int) -> str | None:
    """Why the code server on this local port does not serve the definitions; None if it does.
    Dagster's `grpc-health-check` also accepts a server that could not load them."""
    from dagster._api.list_repositories import sync_list_repositories_grpc  # noqa: PLC0415  gRPC only where it is used
    from dagster._core.errors import DagsterUserCodeProcessError, DagsterUserCodeUnreachableError  # noqa: PLC0415  gRPC only where it is used
    from dagster._grpc.client import DagsterGrpcClient  # noqa: PLC0415  gRPC only where it is used

    try:
        sync_list_repositories_grpc(DagsterGrpcClient(host="127.0.0.1", port=port))
    except DagsterUserCodeUnreachableError:
        return f"No code server answers on port {port}."
    except DagsterUserCodeProcessError as error:
        reason = error.user_code_process_error_infos[0]
        innermost = reason.cause or reason
        return f"The definitions do not load: {innermost.message.strip()}"
    return None
