"""The quality report of a day."""

from pathlib import Path

import dagster as dg

from automation_pipeline.defs.audits import audit_outcomes
from automation_pipeline.orchestration.days import DAYS, check_result, check_specs, day_of
from automation_pipeline.orchestration.ops import CRASH_RETRIES, ServicesResource, dagster_errors


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
        "daily_quality_report", evaluate_report(rows, audits, asked=listed is not None)
    )
