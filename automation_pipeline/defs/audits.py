"""Audits: the jobs, the assets of a day's audits and quality report, and the sweep."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
from pydantic import Field

from automation_pipeline.defs.transcription import transcripts
from automation_pipeline.orchestration.automation_runs import transcript_reader
from automation_pipeline.orchestration.days import (
    DAYS,
    audits_metadata,
    check_result,
    check_specs,
    day_of,
)
from automation_pipeline.orchestration.job_registry import take_request
from automation_pipeline.orchestration.ops import (
    CRASH_RETRIES,
    ServicesResource,
    StrictConfig,
    dagster_errors,
    error_message_of,
    every,
    job_tags,
    owner_of,
)


class AuditFicheConfig(StrictConfig):
    """Which fiche to audit with which configuration, and the origin of the request."""

    fiche_id: str = Field(description="The fiche's id in the CRM.")
    audit_config_id: int = Field(
        description="The audit configuration: `automation audit-configs list` shows them."
    )
    use_rlm: bool = Field(
        default=False, description="The model reads the calls with tools instead of in the prompt."
    )
    tracking_id: str | None = Field(
        default=None, description="The id that the request returned for the audit."
    )
    trigger_source: str | None = Field(
        default="launchpad", description="The origin of the request."
    )
    user_id: str | None = Field(default=None, description="The user who requested the audit.")
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
    """Judge the fiche's calls step by step. A retry continues with the steps that have no result.
    The op succeeds when the audit has a result, whatever its grade."""
    from automation_pipeline.audits.audits import audit_fiche as run_audit
    from automation_pipeline.audits.models.audits import AuditStatus
    from automation_pipeline.orchestration.fiche_jobs import audit_metadata, audit_request

    system = services.get()
    with dagster_errors():
        take_request(context, system)
        work = run_audit(
            audit_request(config.model_dump(), context.run, system),
            database=system.database,
            source=system.crm,
            ensure_transcribed=transcript_reader(system, owner_of(context.run)),
            judge=system.judge,
            clock=system.clock,
        )
        ended = system.run(work)
    if ended.status is not AuditStatus.COMPLETED:
        raise dg.Failure(ended.error, metadata=audit_metadata(ended))
    context.add_output_metadata(audit_metadata(ended))


@dg.failure_hook(required_resource_keys={"services"})
def close_audit(context: dg.HookContext) -> None:
    """Close the audit as soon as its step fails permanently, even if no daemon runs."""
    from automation_pipeline.orchestration.fiche_jobs import fail_audit_of

    run = context.instance.get_run_by_id(context.run_id)
    if run is not None:
        fail_audit_of(run, error_message_of(context.op_exception), context.resources.services.get())


@dg.job(
    tags=job_tags(),
    hooks={close_audit},
    description="Audits the calls of one fiche with one audit configuration. Green: there is a result, whatever "
    "its grade. Red: the audit failed or is incomplete.",
)
def audit_fiche() -> None:
    audit()


class AuditRerunConfig(StrictConfig):
    """What to judge again, and extra instructions for the model."""

    audit_id: int = Field(description="The audit: `automation audits list` shows them.")
    step_position: int = Field(description="The position of the step, from 1.")
    control_point_index: int | None = Field(
        default=None, description="One of its control points, from 1."
    )
    custom_prompt: str | None = Field(default=None, description="Extra instructions for the model.")
    rerun_id: str | None = Field(
        default=None, description="The id that the request returned for the rerun."
    )


@dg.op
def rerun(
    context: dg.OpExecutionContext, config: AuditRerunConfig, services: ServicesResource
) -> None:
    """Judge again and store the result. A retry after the result is stored does not call the
    model."""
    from automation_pipeline.audits.models.audits import Rerun, StepLocation, rerun_id
    from automation_pipeline.audits.reviews import run_rerun
    from automation_pipeline.orchestration.fiche_jobs import step_metadata

    system, run = services.get(), context.run
    location = StepLocation(config.audit_id, config.step_position, config.control_point_index)
    # Without an id, all retries of a Dagster run share one.
    key = config.rerun_id or rerun_id(location, run.root_run_id or run.run_id)
    request = Rerun(rerun_id=key, location=location, instructions=config.custom_prompt)
    with dagster_errors():
        take_request(context, system)
        document = system.run(run_rerun(request, database=system.database, judge=system.judge))
    context.add_output_metadata(step_metadata(document))


@dg.job(
    tags=job_tags(max_runtime_seconds=3_600),
    description="Judges one step or control point of an audit again. Green: there is a result. Red: there is none.",
)
def audit_rerun() -> None:
    rerun()


@dg.asset(
    partitions_def=DAYS,
    group_name="quality",
    kinds={"http"},
    deps=[transcripts],
    retry_policy=CRASH_RETRIES,
)
def audit_outcomes(
    context: dg.AssetExecutionContext, services: ServicesResource
) -> dg.MaterializeResult:
    """The results of the automatic configurations for the day's calls. Only missing and failed
    audits run."""
    from automation_pipeline.audits.audits import DayAuditRequest, audit_day

    system, run = services.get(), context.run
    request = DayAuditRequest(
        day=day_of(context),
        attempt=run.root_run_id or run.run_id,
        width=system.settings.audit_run_concurrency,
        dagster_run_id=run.run_id,
    )
    with dagster_errors():
        auditing = audit_day(
            request,
            database=system.database,
            source=system.crm,
            ensure_transcribed=transcript_reader(system, owner_of(run)),
            judge=system.judge,
            clock=system.clock,
        )
        day = system.run(auditing)
    return dg.MaterializeResult(metadata=audits_metadata(day))


@dg.multi_asset_check(specs=check_specs(audit_outcomes))
def audit_outcomes_checks(
    context: dg.AssetCheckExecutionContext, services: ServicesResource
) -> Iterator[dg.AssetCheckResult]:
    """Nearly every fiche is audited, nearly every step is judged, and few quotations are
    invented."""
    from automation_pipeline.audits.days import audits_of_day, judge_audits
    from automation_pipeline.fiches.queries.mirror import sales_day

    with services.get().database.reading() as session:
        day, listed = audits_of_day(session, day_of(context)), sales_day(session, day_of(context))
    for finding in judge_audits(day, has_sales_list=listed is not None):
        yield check_result("audit_outcomes", finding)


@dg.asset(
    partitions_def=DAYS,
    group_name="quality",
    kinds={"pandas"},
    deps=[audit_outcomes],
    retry_policy=CRASH_RETRIES,
)
def daily_quality_report(
    context: dg.AssetExecutionContext, services: ServicesResource
) -> dg.MaterializeResult:
    """Scores by groupe, frequently failed control points, causes of failed fiches, and a file of
    the latest audits."""
    from automation_pipeline.automation.queries.reports import quality_of
    from automation_pipeline.orchestration.report import write_report

    system = services.get()
    with dagster_errors():
        with system.database.reading() as session:
            quality = quality_of(session, day_of(context))
        return dg.MaterializeResult(
            metadata=write_report(quality, Path(system.settings.automation_reports_dir))
        )


@dg.multi_asset_check(specs=check_specs(daily_quality_report))
def daily_quality_report_checks(
    context: dg.AssetCheckExecutionContext, services: ServicesResource
) -> dg.AssetCheckResult:
    """The file has a row for every latest audit."""
    from automation_pipeline.automation.queries.reports import audits_on, evaluate_report
    from automation_pipeline.fiches.queries.mirror import sales_day
    from automation_pipeline.orchestration.report import rows_filed

    system, day = services.get(), day_of(context)
    with system.database.reading() as session:
        audits, listed = audits_on(session, day), sales_day(session, day)
    rows = rows_filed(day, Path(system.settings.automation_reports_dir))
    return check_result(
        "daily_quality_report", evaluate_report(rows, audits, has_sales_list=listed is not None)
    )


@dg.sensor(
    target=None,
    minimum_interval_seconds=every(30),
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Ends audits whose worker is lost, and batches of audits that are complete.",
)
def sweep_audits(context: dg.SensorEvaluationContext, services: ServicesResource) -> dg.SkipReason:
    from automation_pipeline.audits.audits import sweep_audits as end_abandoned
    from automation_pipeline.orchestration.watchdog import end_lost_audits

    system = services.get()
    abandoned = end_abandoned(
        system.settings.audit_max_wait_seconds, database=system.database, claims=system.claims
    )
    ended = [*abandoned, *end_lost_audits(context.instance, system)]
    return dg.SkipReason(f"Ended {', '.join(ended)}." if ended else "No audit is abandoned.")
