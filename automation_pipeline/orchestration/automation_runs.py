"""Automation runs in Dagster: launch config, attempt, and the tags of a run."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import dagster as dg

from automation_pipeline.automation.models.runs import RunAttempt, Trigger
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.orchestration.job_registry import LAUNCH_TAG
from automation_pipeline.orchestration.ops import dagster_errors

if TYPE_CHECKING:
    from automation_pipeline.automation.runs import RunLaunch
    from automation_pipeline.bootstrap import Services

RUN_ID_TAG, ATTEMPT_TAG = "automation/run_id", "automation/attempt"
_BATCH = "batch_"

FROM_THE_FIRST_STEP = (
    'An automation run cannot continue from a failed step: its attempt is over. Choose "Re-execute all steps": '
    "completed work is not repeated."
)


def batch_key(batch: int) -> str:
    return f"{_BATCH}{batch}"


class Tickets(dg.IOManager):
    """Passes the ticket of the attempt that this Dagster run has opened between steps, alone or
    with a batch number. The steps of a superseded attempt get its own ticket, never the newer one,
    and the ledger refuses it."""

    def handle_output(self, context: dg.OutputContext, obj: object) -> None:
        """`open_run` has written the ticket to the tags."""
        is_ticket = isinstance(obj[0] if isinstance(obj, tuple) else obj, RunAttempt)
        if obj is not None and not is_ticket:
            raise dg.DagsterInvariantViolationError(
                f"{context.step_key} returns {type(obj).__name__}: steps return only tickets and store other data."
            )

    def load_input(self, context: dg.InputContext) -> RunAttempt | tuple[RunAttempt, int]:
        """Read the ticket from the tags of the Dagster run."""
        made = context.upstream_output
        if made is not None and made.run_id != context.step_context.run_id:
            raise dg.Failure(FROM_THE_FIRST_STEP, allow_retries=False)
        run = made and context.step_context.instance.get_run_by_id(made.run_id)
        if made is None or run is None or ATTEMPT_TAG not in run.tags:
            raise dg.DagsterInvariantViolationError(
                "No step of this run has opened an attempt: execute it from open_run."
            )
        ticket = RunAttempt(int(run.tags[RUN_ID_TAG]), int(run.tags[ATTEMPT_TAG]))
        if made.mapping_key is None:
            return ticket
        return ticket, int(made.mapping_key.removeprefix(_BATCH))


@contextmanager
def step_of_attempt(
    context: dg.OpExecutionContext, ticket: RunAttempt, services: "Services"
) -> Generator[None]:
    """Send the run's heartbeat during a step, and convert errors as `dagster_errors` does. A step
    of a cancelled run ends without a failure, and `finalise_run` shows the outcome."""
    from automation_pipeline.automation.queries.runs import RunCancelledError  # noqa: PLC0415  every job loads this module
    from automation_pipeline.orchestration.heartbeat import beating  # noqa: PLC0415  the same

    with dagster_errors(), beating(ticket, services):
        try:
            yield
        except RunCancelledError as error:
            context.log.info(f"{error} This step stops.")


# A tag with the business outcome of a run, for filters in Dagster.
STATUS_TAG = "automation/status"


def parse_launch(
    config: Mapping[str, Any], dagster_run: dg.DagsterRun, worker: str, lost_after_seconds: float
) -> "RunLaunch":
    from automation_pipeline.automation.models.schedules import parse_selection  # noqa: PLC0415  every job loads this module
    from automation_pipeline.automation.runs import RunLaunch  # noqa: PLC0415  the same

    override, due_at = config["override_fiche_selection"], config["due_at"]
    return RunLaunch(
        schedule_id=config["schedule_id"],
        run_id=config["run_id"],
        due_at=None if due_at is None else _instant(due_at),
        override=None if override is None else parse_selection(override),
        dagster_run_id=dagster_run.run_id,
        dagster_root_run_id=dagster_run.root_run_id or dagster_run.run_id,
        worker=worker,
        is_next=int(dagster_run.tags.get(LAUNCH_TAG, "1")) > 1,
        is_repeat=dagster_run.parent_run_id is not None,
        lost_after_seconds=lost_after_seconds,
    )


def _instant(text: str) -> datetime:
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInputError(f"due_at is not an ISO instant: {text!r}.") from None
    if instant.tzinfo is None:
        raise InvalidInputError(f"due_at needs a time zone: {text!r}.")
    return instant


def opening_tags(
    ticket: RunAttempt, schedule_id: int, present: Mapping[str, str]
) -> dict[str, str]:
    """The ticket for the later steps, and the tags that a run from the launchpad lacks."""
    return {
        RUN_ID_TAG: str(ticket.run_id),
        ATTEMPT_TAG: str(ticket.attempt),
        "automation/schedule_id": str(schedule_id),
        "automation/trigger": present.get("automation/trigger", Trigger.LAUNCHPAD.value),
    }
