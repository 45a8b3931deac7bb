"""Closes the automation run at once when one of its steps has failed for good, also where no daemon
listens."""

import dagster as dg

from automation_pipeline.orchestration.failures import words_of


@dg.failure_hook(required_resource_keys={"services"})
def close_run(context: dg.HookContext) -> None:
    from automation_pipeline.automation.queries.runs import unended_run_of_dagster
    from automation_pipeline.automation.run_endings import finalise_run

    our = context.resources.services.get()
    with our.database.reading() as session:
        ticket = unended_run_of_dagster(session, context.run_id, None)
    if ticket is not None:
        finalise_run(
            ticket.run_id,
            database=our.database,
            clock=our.clock,
            attempt=ticket.attempt,
            breakdown=words_of(context.op_exception),
        )
