"""The job `rule_run`: plan, apply, try again or take back a run of a pricing rule, whichever it
waits for."""

import dagster as dg
from pydantic import Field

from automation_pipeline.orchestration.config import StrictConfig
from automation_pipeline.orchestration.failures import others_at_it, verdicts
from automation_pipeline.orchestration.requests import take_request
from automation_pipeline.orchestration.resource import ServicesResource


class RuleRunConfig(StrictConfig):
    """Which run is worked on, or of which rule one is made: exactly one of run_id and rule_id."""

    run_id: int | None = Field(
        default=None,
        description="Work on this run: `automation pricing runs list` shows them. It is planned, applied, retried or "
        "rolled back, whatever was asked for; where nothing was, nothing is done.",
    )
    rule_id: int | None = Field(
        default=None,
        description="Make a run of this rule and work on it at once: `automation pricing rules list` shows them. Where "
        "its project wants an approval, the run is planned and waits for it.",
    )
    preview_only: bool = Field(
        default=False,
        description="Only plan: the prices before and after are written down, the shop keeps its own.",
    )
    force: bool = Field(
        default=False,
        description="With rule_id: do not wait until the rule has rested after its last run.",
    )


@dg.op
def work_rule_run(
    context: dg.OpExecutionContext, config: RuleRunConfig, services: ServicesResource
) -> None:
    """Go on with the run until nothing is left, or nothing yet. The step fails when the run has
    FAILED."""
    from automation_pipeline.orchestration.pricing import (
        MOST_TARGETS,
        Launch,
        counting_moves,
        run_page,
        work_on,
    )
    from automation_pipeline.pricing.models.runs import PricingRunState
    from automation_pipeline.pricing.queries.runs import PricingRunBusyError, targets_of

    our = services.get()
    with verdicts(), counting_moves(our), others_at_it(context, PricingRunBusyError):
        take_request(context, our)
        run = our.run(work_on(Launch(**config.model_dump()), context, our))
        with our.database.reading() as session:
            page = run_page(run, targets_of(session, run.id, limit=MOST_TARGETS))
        if run.status is PricingRunState.FAILED:
            reason = (
                run.error_message or f"Run {run.id} has failed: none of its prices was applied."
            )
            raise dg.Failure(reason, metadata=page, allow_retries=False)
        context.add_output_metadata(page)


@dg.job(
    tags={
        "dagster/retry_strategy": "ALL_STEPS",
        "dagster/max_retries": "0",
        "dagster/max_runtime": "18000",
    },
    description="Plans or applies a run of a pricing rule, or rolls it back. Green: the run reached a recorded "
    "state. Red: it FAILED or could not be worked on.",
)
def rule_run() -> None:
    work_rule_run()
