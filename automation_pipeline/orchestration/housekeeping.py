"""Regular work of the whole installation: deletion of old rows and Dagster runs, and alerts."""

import asyncio
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Literal

from dagster import DagsterInstance, RunsFilter

from automation_pipeline.bootstrap import Services
from automation_pipeline.core.alerts import AlertReceiver, AlertReceivers, AlertSeverity
from automation_pipeline.core.settings import Settings
from automation_pipeline.orchestration.ops import Metadata, as_metadata, table
from automation_pipeline.orchestration.recovery import ENDED
from automation_pipeline.retention import purge_all
from automation_pipeline.storage.alerts import AlertTable, deliver_alerts, raise_alerts

RUNS_PER_PAGE = 100
# The next night deletes the rest.
MAX_RUNS = 10_000
PAUSE_SECONDS = 0.05


async def delete_old_runs(
    instance: DagsterInstance, before: datetime, *, is_dry: bool = False, limit: int = MAX_RUNS
) -> int:
    """Delete the oldest Dagster runs that ended before this instant, and return their number; a
    dry run only counts. Step logs and events, including materialisations, are deleted with their
    run."""
    old = RunsFilter(statuses=list(ENDED), updated_before=before)
    if is_dry:
        return instance.get_runs_count(old)
    deleted = 0
    while deleted < limit:
        page = instance.get_runs(old, limit=min(RUNS_PER_PAGE, limit - deleted), ascending=True)
        if not page:
            break
        for run in page:
            instance.compute_log_manager.delete_logs(prefix=[run.run_id, "compute_logs"])
            instance.delete_run(run.run_id)
        deleted += len(page)
        await asyncio.sleep(PAUSE_SECONDS)
    return deleted


async def delete_old_rows(
    instance: DagsterInstance, services: Services, *, is_dry: bool = False
) -> Mapping[str, int]:
    """The number of rows deleted per kind; a dry run only counts."""
    keep_days, deleted = services.settings.dagster_runs_keep_days, 0
    own = await purge_all(services, is_dry=is_dry)
    if keep_days:
        before = services.clock.now() - timedelta(days=keep_days)
        deleted = await delete_old_runs(instance, before, is_dry=is_dry)
    return {**own, "dagster runs": deleted}


def housekeeping_metadata(deleted: Mapping[str, int]) -> Metadata:
    """The total and its parts."""
    rows = [(name, f"{count:,}") for name, count in deleted.items()]
    return as_metadata({"rows": sum(deleted.values()), "kinds": table(("What", "Rows"), rows)})


AlertSettings = Literal["pricing", "org_jobs"]


def tick_alerts(alerts: AlertTable[Any], package: AlertSettings, services: Services) -> str:
    """Deliver in a separate event loop: sensors run in threads of one process, where the
    services' loop may be in use."""
    database, receivers = services.database, receivers_of(services.settings, package)
    raised = raise_alerts(alerts, receivers, database=database, clock=services.clock)
    delivery = deliver_alerts(
        alerts,
        receivers,
        sender=services.webhooks,
        secret=services.webhook_secret,
        policy=services.delivery_policy,
        database=database,
    )
    tried = asyncio.run(services.counted(delivery))
    return f"Raised {len(raised)} alerts; tried {tried} webhooks."


def receivers_of(settings: Settings, package: AlertSettings) -> AlertReceivers:
    """Critical alerts go to the address for all alerts unless they have their own."""
    key = settings.pagerduty_routing_key
    routing_key = key.get_secret_value() if key else None
    receivers: dict[AlertSeverity, AlertReceiver] = {}
    for prefix, severities in (
        (package, tuple(AlertSeverity)),
        (f"{package}_critical", (AlertSeverity.CRITICAL,)),
    ):
        url = getattr(settings, f"{prefix}_alert_webhook_url")
        shape = getattr(settings, f"{prefix}_alert_webhook_shape")
        if url is not None:
            receivers |= dict.fromkeys(severities, AlertReceiver(url, shape, routing_key))
    return receivers
