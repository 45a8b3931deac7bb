"""The task of Celery's workers: one step of a Dagster run, begun only if that run still wants it."""

import celery
from celery.exceptions import Ignore
from dagster import DagsterInstance
from dagster._grpc.types import ExecuteStepArgs
from dagster._serdes import serialize_value, unpack_value
from dagster_shared.serdes.serdes import JsonSerializableValue

from automation_pipeline.bootstrap import services
from automation_pipeline.orchestration.delivered_step import (
    AtWorkElsewhereError,
    Delivery,
    at_work,
    events_of,
    is_wanted,
)


class CeleryStep(celery.Task):
    """Dagster's own task does the work, and answers with the step's events. What has been done is not done again, and
    what is at work is left to whoever works on it."""

    abstract = True

    def __call__(self, execute_step_args_packed: JsonSerializableValue, executable_dict: object) -> list[str]:
        asked = unpack_value(execute_step_args_packed, as_type=ExecuteStepArgs)
        again = bool((self.request.delivery_info or {}).get("redelivered"))
        delivery = Delivery(asked.run_id, ",".join(asked.step_keys_to_execute or []), again)
        with DagsterInstance.from_ref(asked.instance_ref) as instance:  # pyright: ignore[reportArgumentType]  it is there
            if not is_wanted(delivery, instance):
                return []
            if known := events_of(delivery, instance):
                return [serialize_value(event) for event in known]
            try:
                with at_work(delivery, instance, services()):
                    return self.run(execute_step_args_packed, executable_dict)
            except AtWorkElsewhereError as error:
                raise Ignore from error
            return []  # it was stopped
