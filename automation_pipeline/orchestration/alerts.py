"""Raise and deliver the alerts of one package: the tick of its sensor."""

import asyncio
from typing import Any, Literal

from automation_pipeline.bootstrap import Services
from automation_pipeline.core.alerts import AlertReceiver, AlertReceivers, AlertSeverity
from automation_pipeline.core.settings import Settings
from automation_pipeline.core.webhooks import DeliveryPolicy
from automation_pipeline.storage.alerts import AlertTable, deliver_alerts, raise_alerts

AlertSettings = Literal["pricing", "org_jobs"]


def tick_alerts(alerts: AlertTable[Any], package: AlertSettings, services: Services) -> str:
    """Deliver in a separate event loop: sensors run in threads of one process, where the
    services' loop may be in use."""
    settings, database = services.settings, services.database
    secret, receivers = settings.webhook_secret, receivers_of(settings, package)
    raised = raise_alerts(alerts, receivers, database=database, clock=services.clock)
    delivery = deliver_alerts(
        alerts,
        receivers,
        sender=services.webhooks,
        secret=secret.get_secret_value() if secret else None,
        patience=DeliveryPolicy(attempts=settings.webhook_max_attempts),
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
