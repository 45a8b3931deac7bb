"""The job `audit_rerun`: judge a step, or one of its control points, again."""

import dagster as dg
from pydantic import Field

from automation_pipeline.audits.models.audits import rerun_id
from automation_pipeline.audits.rules.reviews import Rerun
from automation_pipeline.orchestration.config import StrictConfig
from automation_pipeline.orchestration.failures import verdicts
from automation_pipeline.orchestration.requests import take_request
from automation_pipeline.orchestration.resource import ServicesResource


class AuditRerunConfig(StrictConfig):
    """What is judged again, and what the model is told beside."""

    audit_id: int = Field(description="The audit: `automation audits list` shows them.")
    step_position: int = Field(description="The position of the step, from 1.")
    control_point_index: int | None = Field(
        default=None, description="One of its control points, from 1."
    )
    custom_prompt: str | None = Field(
        default=None, description="Instructions of a person for the model."
    )
    rerun_id: str | None = Field(default=None, description="The id that the rerun was promised.")


@dg.op
def rerun(
    context: dg.OpExecutionContext, config: AuditRerunConfig, services: ServicesResource
) -> None:
    """Ask the model and store what it finds. A retry of what is stored asks nothing."""
    from automation_pipeline.audits.reruns import rerun_control_point, rerun_step
    from automation_pipeline.orchestration.audits import step_metadata

    our, wish = services.get(), _wish(config, context.run)
    with verdicts():
        take_request(context, our)
        judge_again = rerun_step if config.control_point_index is None else rerun_control_point
        document = our.run(judge_again(wish, database=our.database, judge=our.judge))
    context.add_output_metadata(step_metadata(document))


def _wish(config: AuditRerunConfig, run: dg.DagsterRun) -> Rerun:
    """Retries of a run carry out its rerun."""
    from automation_pipeline.audits.models.audits import StepLocation

    place = StepLocation(config.audit_id, config.step_position, config.control_point_index)
    made_up = rerun_id(place.audit_id, place.position, place.point, run.root_run_id or run.run_id)
    return Rerun(
        rerun_id=config.rerun_id or made_up, place=place, instructions=config.custom_prompt
    )


@dg.job(
    tags={
        "dagster/retry_strategy": "ALL_STEPS",
        "dagster/max_retries": "0",
        "dagster/max_runtime": "3600",
    },
    description="Judges one step or control point of an audit again. Green: there is a result. Red: there is none.",
)
def audit_rerun() -> None:
    rerun()
