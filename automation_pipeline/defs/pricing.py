"""Price runs and reconciliations: jobs, the asset and sensors."""

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field

from automation_pipeline.orchestration.days import (
    DAYS,
    SETTINGS,
    check_result,
    check_specs,
    day_of,
    span_of,
)
from automation_pipeline.orchestration.job_registry import take_request
from automation_pipeline.orchestration.ops import (
    CRASH_RETRIES,
    ServicesResource,
    StrictConfig,
    every,
    others_at_it,
    verdicts,
)

if TYPE_CHECKING:
    from automation_pipeline.bootstrap import Services


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
    from automation_pipeline.pricing.models.runs import PricingRunBusyError, PricingRunState
    from automation_pipeline.pricing.queries.views import targets_of

    system = services.get()
    with verdicts(), counting_moves(system), others_at_it(context, PricingRunBusyError):
        take_request(context, system)
        run = system.run(work_on(Launch(**config.model_dump()), context, system))
        with system.database.reading() as session:
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

    system = services.get()
    with verdicts():
        take_request(context, system)
        reports = system.run(check_prices(config.run_id, config.check, system))
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


@dg.asset(partitions_def=DAYS, group_name="pricing", retry_policy=CRASH_RETRIES)
def pricing_runs(
    context: dg.AssetExecutionContext, services: ServicesResource
) -> dg.MaterializeResult:
    """Runs that ended on the day: how many prices were applied and how many were not."""
    from automation_pipeline.orchestration.pricing import day_page
    from automation_pipeline.pricing.queries.monitoring import runs_that_ended

    span = span_of(day_of(context))
    with verdicts(), services.get().database.reading() as session:
        return dg.MaterializeResult(metadata=day_page(runs_that_ended(session, *span)))


@dg.multi_asset_check(specs=check_specs(pricing_runs))
def pricing_runs_checks(
    context: dg.AssetCheckExecutionContext, services: ServicesResource
) -> Iterator[dg.AssetCheckResult]:
    """Nearly every price applied, few failures left to themselves, the shop's prices as applied,
    invariants kept."""
    from automation_pipeline.pricing.queries.monitoring import runs_that_ended
    from automation_pipeline.pricing.rules.monitoring import evaluate_day

    span = span_of(day_of(context))
    with services.get().database.reading() as session:
        day = runs_that_ended(session, *span)
    for finding in evaluate_day(day):
        yield check_result("pricing_runs", finding)


RUNNING = dg.DefaultSensorStatus.RUNNING


def _with_shop(services: ServicesResource, tick: "Callable[[Services], str]") -> dg.SkipReason:
    from automation_pipeline.orchestration.pricing import NOT_CONFIGURED

    system = services.get()
    has_shop = system.settings.shop_api_base_url is not None
    return dg.SkipReason(tick(system) if has_shop else NOT_CONFIGURED)


@dg.sensor(
    target=None,
    minimum_interval_seconds=every(30),
    default_status=RUNNING,
    description="Files a run for every pricing rule that is due, and a rollback for every promotion that is over.",
)
def due_pricing_rules(services: ServicesResource) -> dg.SkipReason:
    from automation_pipeline.pricing.runs import start_due_rules

    def tick(system: "Services") -> str:
        shop = system.storefront.name
        return str(start_due_rules(database=system.database, clock=system.clock, shop=shop))

    return _with_shop(services, tick)


@dg.sensor(
    target=None,
    minimum_interval_seconds=every(30),
    default_status=RUNNING,
    description="Files the checks of applied prices: within five minutes, and after an hour.",
)
def due_rule_checks(services: ServicesResource) -> dg.SkipReason:
    from automation_pipeline.pricing.checks import request_due_checks

    def tick(system: "Services") -> str:
        if not system.settings.worker_enable_reconciliation:
            return "WORKER_ENABLE_RECONCILIATION is off."
        filed = request_due_checks(database=system.database, clock=system.clock)
        return f"Filed {', '.join(filed)}." if filed else "No check is due."

    return _with_shop(services, tick)


@dg.sensor(
    target=None,
    minimum_interval_seconds=every(30),
    default_status=RUNNING,
    description="Requests a worker for every price run that waits for one or has lost its worker.",
)
def sweep_rule_runs(services: ServicesResource) -> dg.SkipReason:
    from automation_pipeline.pricing.runs import sweep_rule_runs as sweep

    def tick(system: "Services") -> str:
        runs = sweep(database=system.database, clock=system.clock)
        if not runs:
            return "No run is left alone."
        return f"Asked again for runs {', '.join(map(str, runs))}."

    return _with_shop(services, tick)


@dg.sensor(
    target=None,
    minimum_interval_seconds=every(60),
    default_status=RUNNING,
    description="Raises alerts about pricing, and delivers them to the webhooks by severity.",
)
def pricing_alerts(services: ServicesResource) -> dg.SkipReason:
    from automation_pipeline.orchestration.pricing import alert_about_prices

    # A loop of its own: sensors run in threads of one process, which may use the services' loop.
    return _with_shop(
        services, lambda system: asyncio.run(system.counted(alert_about_prices(system)))
    )
