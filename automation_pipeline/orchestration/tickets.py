"""What steps hand to each other is found in the run's own tags: no disk and no table has to hold it."""

import dagster as dg

from automation_pipeline.automation.domain.run import RunTicket

RUN_ID_TAG, ATTEMPT_TAG = "automation/run_id", "automation/attempt"
_BATCH = "batch_"

FROM_THE_FIRST_STEP = (
    'An automation run cannot go on from a failed step: its attempt is over. Choose "Re-execute all steps": what is '
    "done is not done again."
)


def batch_key(batch: int) -> str:
    """The mapping key of a batch."""
    return f"{_BATCH}{batch}"


class Tickets(dg.IOManager):
    """Between steps go the ticket of the attempt that this Dagster run has opened, alone or with a batch's number. An
    attempt that has been overtaken finds its own ticket, never the newer one: the ledger refuses it."""

    def handle_output(self, context: dg.OutputContext, obj: object) -> None:
        """`open_run` has put the ticket into the tags."""
        is_ticket = isinstance(obj[0] if isinstance(obj, tuple) else obj, RunTicket)
        if obj is not None and not is_ticket:
            raise dg.DagsterInvariantViolationError(
                f"{context.step_key} returns {type(obj).__name__}: steps hand on tickets, everything else is a row."
            )

    def load_input(self, context: dg.InputContext) -> RunTicket | tuple[RunTicket, int]:
        """The ticket is in the tags of the Dagster run itself."""
        made = context.upstream_output
        if made is not None and made.run_id != context.step_context.run_id:
            raise dg.Failure(FROM_THE_FIRST_STEP, allow_retries=False)
        run = made and context.step_context.instance.get_run_by_id(made.run_id)
        if made is None or run is None or ATTEMPT_TAG not in run.tags:
            raise dg.DagsterInvariantViolationError(
                "No step of this run has opened an attempt: execute it from open_run."
            )
        ticket = RunTicket(int(run.tags[RUN_ID_TAG]), int(run.tags[ATTEMPT_TAG]))
        if made.mapping_key is None:
            return ticket
        return ticket, int(made.mapping_key.removeprefix(_BATCH))
