"""The job `rule_reconciliation`: does the shop still have the prices that were applied? And its
daily schedule."""

import dagster as dg
from pydantic import Field

from automation_pipeline.orchestration.config import StrictConfig
from automation_pipeline.orchestration.days import SETTINGS
from automation_pipeline.orchestration.failures import verdicts
from automation_pipeline.orchestration.requests import take_request
from automation_pipeline.orchestration.resource import ServicesResource


class ReconciliationConfig(StrictConfig):
    """Which run's prices are looked up. With neither: the daily pass over all runs of the last
    thirty days."""

    run_id: int | None = Field(
        default=None,
        description="Only the prices of this run: `automation pricing runs list` shows them.",
    )
    check: str | None = Field(
        default=None,
        description="The name of a check that is due: 5m, 1h, or a day. Made up when left out.",
    )


@dg.op
def reconcile(
    context: dg.OpExecutionContext, config: ReconciliationConfig, services: ServicesResource
) -> None:
    """Read the prices from the shop and write down what differs; nothing is changed there. The op
    fails when there are prices to compare and none can be read."""
    from automation_pipeline.orchestration.pricing import check_prices, reports_page

    our = services.get()
    with verdicts():
        take_request(context, our)
        reports = our.run(check_prices(config.run_id, config.check, our))
    page = reports_page(reports)
    unread = [one for report in reports for one in report.unverified]
    if unread and not any(report.total_checked for report in reports):
        reason = f"None of {len(unread)} prices could be read: {unread[0].reason.rstrip('.')}."
        raise dg.Failure(reason, metadata=page, allow_retries=False)
    context.add_output_metadata(page)


@dg.job(
    tags={
        "dagster/retry_strategy": "ALL_STEPS",
        "dagster/max_retries": "0",
        "dagster/max_runtime": "18000",
    },
    description="Compares applied prices with the prices in the shop and changes nothing. Green: there is a "
    "report, with or without mismatches. Red: the prices could not be read.",
)
def rule_reconciliation() -> None:
    reconcile()


@dg.schedule(
    job=rule_reconciliation,
    cron_schedule="0 6 * * *",
    execution_timezone=SETTINGS.automation_timezone,
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Every morning at 06:00: compares the prices of all runs of the last thirty days with the shop.",
)
def daily_pricing_reconciliation(
    context: dg.ScheduleEvaluationContext, services: ServicesResource
) -> dg.RunRequest | dg.SkipReason:
    from automation_pipeline.orchestration.pricing import NOT_CONFIGURED

    settings = services.get().settings
    if settings.shop_api_base_url is None:
        return dg.SkipReason(NOT_CONFIGURED)
    if not settings.worker_enable_reconciliation:
        return dg.SkipReason(
            "WORKER_ENABLE_RECONCILIATION is off: prices are looked up by hand only."
        )
    return dg.RunRequest(run_key=context.scheduled_execution_time.date().isoformat())
