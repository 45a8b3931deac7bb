"""The job `audit_fiche`: begin the audit, or go on with it, until it is over."""

import dagster as dg
from pydantic import Field

from automation_pipeline.audits.models.audits import FicheAuditRequest
from automation_pipeline.orchestration.config import StrictConfig
from automation_pipeline.orchestration.failures import verdicts, words_of
from automation_pipeline.orchestration.requests import take_request
from automation_pipeline.orchestration.resource import ServicesResource


class AuditFicheConfig(StrictConfig):
    """Which fiche is judged by which configuration, and who asked."""

    fiche_id: str = Field(description="The fiche's id in the CRM.")
    audit_config_id: int = Field(
        description="The audit configuration: `automation audit-configs list` shows them."
    )
    use_rlm: bool = Field(
        default=False, description="The model reads the calls with tools instead of in the prompt."
    )
    tracking_id: str | None = Field(default=None, description="The id that the audit was promised.")
    trigger_source: str | None = Field(default="launchpad", description="What asked for the audit.")
    user_id: str | None = Field(default=None, description="Who asked for it.")
    automation_schedule_id: int | None = Field(
        default=None, description="The schedule that it belongs to."
    )
    automation_run_id: int | None = Field(
        default=None, description="The automation run that it belongs to."
    )


@dg.op
def audit(
    context: dg.OpExecutionContext, config: AuditFicheConfig, services: ServicesResource
) -> None:
    """Judge the fiche's calls step by step. A retry goes on with the steps that have no result. The
    step succeeds when the audit has a result, whatever its grade."""
    from automation_pipeline.audits.audits import audit_fiche as audit_to_the_end
    from automation_pipeline.audits.models.audits import AuditStatus
    from automation_pipeline.orchestration.audits import standing_metadata
    from automation_pipeline.orchestration.batch_context import listener
    from automation_pipeline.orchestration.heartbeat import worker_name

    our, wish = services.get(), _wish(config, context.run)
    with verdicts():
        take_request(context, our)
        ensure_transcribed = listener(our, f"{worker_name()}/{context.run_id}")
        work = audit_to_the_end(
            wish,
            database=our.database,
            source=our.crm,
            ensure_transcribed=ensure_transcribed,
            judge=our.judge,
            clock=our.clock,
        )
        standing = our.run(work)
    if standing.status is not AuditStatus.COMPLETED:
        raise dg.Failure(standing.error, metadata=standing_metadata(standing), allow_retries=False)
    context.add_output_metadata(standing_metadata(standing))


def _wish(config: AuditFicheConfig, run: dg.DagsterRun) -> FicheAuditRequest:
    from automation_pipeline.orchestration.audits import tracking_id_of

    return FicheAuditRequest(
        tracking_id=tracking_id_of(run) or run.run_id,
        fiche_id=config.fiche_id,
        audit_config_id=config.audit_config_id,
        use_rlm=config.use_rlm,
        trigger_source=config.trigger_source,
        user_id=config.user_id,
        schedule_id=config.automation_schedule_id,
        run_id=config.automation_run_id,
        dagster_run_id=run.run_id,
    )


@dg.failure_hook(required_resource_keys={"services"})
def close_audit(context: dg.HookContext) -> None:
    """At once when its step has failed for good, also where no daemon listens."""
    from automation_pipeline.orchestration.audits import fail_audit_of

    run = context.instance.get_run_by_id(context.run_id)
    if run is not None:
        fail_audit_of(run, words_of(context.op_exception), context.resources.services.get())


@dg.job(
    tags={
        "dagster/retry_strategy": "ALL_STEPS",
        "dagster/max_retries": "0",
        "dagster/max_runtime": "18000",
    },
    hooks={close_audit},
    description="Audits the calls of one fiche with one audit configuration. Green: there is a result, whatever "
    "its grade. Red: the audit failed or is incomplete.",
)
def audit_fiche() -> None:
    audit()
