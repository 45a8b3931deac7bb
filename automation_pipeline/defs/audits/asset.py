"""The asset `audit_outcomes`: what the audits of a day's fiches found."""

from collections.abc import Iterator

import dagster as dg

from automation_pipeline.audits.rules.days import AUDIT_CHECKS
from automation_pipeline.defs.transcription.asset import transcripts
from automation_pipeline.orchestration.days import DAYS, check_result, check_specs, day_of
from automation_pipeline.orchestration.failures import CRASH_RETRIES, verdicts
from automation_pipeline.orchestration.resource import ServicesResource


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
    """What the automatic configurations find in the day's calls; only audits that are missing or
    failed are made."""
    from automation_pipeline.audits.days import DayAuditRequest, audit_day
    from automation_pipeline.orchestration.audits import day_metadata
    from automation_pipeline.orchestration.batch_context import listener
    from automation_pipeline.orchestration.heartbeat import worker_name

    our, run = services.get(), context.run
    request = DayAuditRequest(
        day=day_of(context),
        attempt=run.root_run_id or run.run_id,
        width=our.settings.audit_run_concurrency,
        dagster_run_id=run.run_id,
    )
    with verdicts():
        listen = listener(our, f"{worker_name()}/{context.run.run_id}")
        auditing = audit_day(
            request,
            database=our.database,
            source=our.crm,
            ensure_transcribed=listen,
            judge=our.judge,
            clock=our.clock,
        )
        day = our.run(auditing)
    return dg.MaterializeResult(metadata=day_metadata(day))


@dg.multi_asset_check(specs=check_specs(audit_outcomes, AUDIT_CHECKS))
def audit_outcomes_checks(
    context: dg.AssetCheckExecutionContext, services: ServicesResource
) -> Iterator[dg.AssetCheckResult]:
    """Nearly every fiche audited, nearly every step answered, and few quotations that were never
    said."""
    from automation_pipeline.audits.queries.days import audits_of_day
    from automation_pipeline.audits.rules.days import judge_audits
    from automation_pipeline.fiches.queries.days import sales_day

    with services.get().database.reading() as session:
        day, listed = audits_of_day(session, day_of(context)), sales_day(session, day_of(context))
    for finding in judge_audits(day, asked=listed is not None):
        yield check_result("audit_outcomes", finding)
