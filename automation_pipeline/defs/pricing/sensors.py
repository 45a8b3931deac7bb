"""Sensors of pricing: what is due begins, what was left alone is gone on with, alerts leave. Two
copies do no harm."""

import asyncio

import dagster as dg

from automation_pipeline.orchestration.config import every
from automation_pipeline.orchestration.resource import ServicesResource

RUNNING = dg.DefaultSensorStatus.RUNNING


@dg.sensor(
    target=None,
    minimum_interval_seconds=every(30),
    default_status=RUNNING,
    description="Files a run for every pricing rule that is due, and a rollback for every promotion that is over.",
)
def due_pricing_rules(services: ServicesResource) -> dg.SkipReason:
    from automation_pipeline.orchestration.pricing import NOT_CONFIGURED, has_shop
    from automation_pipeline.pricing.runs import start_due_rules

    our = services.get()
    if not has_shop(our):
        return dg.SkipReason(NOT_CONFIGURED)
    return dg.SkipReason(
        str(start_due_rules(database=our.database, clock=our.clock, shop=our.storefront.name))
    )


@dg.sensor(
    target=None,
    minimum_interval_seconds=every(30),
    default_status=RUNNING,
    description="Files the checks of applied prices: within five minutes, and after an hour.",
)
def due_rule_checks(services: ServicesResource) -> dg.SkipReason:
    from automation_pipeline.orchestration.pricing import NOT_CONFIGURED, has_shop
    from automation_pipeline.pricing.checks import request_due_checks

    our = services.get()
    if not has_shop(our):
        return dg.SkipReason(NOT_CONFIGURED)
    if not our.settings.worker_enable_reconciliation:
        return dg.SkipReason("WORKER_ENABLE_RECONCILIATION is off.")
    filed = request_due_checks(database=our.database, clock=our.clock)
    return dg.SkipReason(f"Filed {', '.join(filed)}." if filed else "No check is due.")


@dg.sensor(
    target=None,
    minimum_interval_seconds=every(30),
    default_status=RUNNING,
    description="Requests a worker for every price run that waits for one or has lost its worker.",
)
def sweep_rule_runs(services: ServicesResource) -> dg.SkipReason:
    from automation_pipeline.orchestration.pricing import NOT_CONFIGURED, has_shop
    from automation_pipeline.pricing.runs import sweep_rule_runs as ask_again

    our = services.get()
    if not has_shop(our):
        return dg.SkipReason(NOT_CONFIGURED)
    runs = ask_again(database=our.database, clock=our.clock)
    return dg.SkipReason(
        f"Asked again for runs {', '.join(map(str, runs))}." if runs else "No run is left alone."
    )


@dg.sensor(
    target=None,
    minimum_interval_seconds=every(60),
    default_status=RUNNING,
    description="Raises alerts about pricing, and delivers them to the webhooks by severity.",
)
def pricing_alerts(services: ServicesResource) -> dg.SkipReason:
    from automation_pipeline.orchestration.pricing import (
        NOT_CONFIGURED,
        alert_about_prices,
        has_shop,
    )

    our = services.get()
    if not has_shop(our):
        return dg.SkipReason(NOT_CONFIGURED)
    # A loop of its own: sensors run in threads of one process, where the services' loop may be at
    # work.
    return dg.SkipReason(asyncio.run(our.counted(alert_about_prices(our))))
