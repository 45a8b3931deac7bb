"""One look at how prices fare: what is wrong is raised, and what was raised is carried to the webhook."""

import asyncio

from automation_pipeline.bootstrap import Services
from automation_pipeline.core.delivery import Patience
from automation_pipeline.pricing.domain.alerts import AlertSeverity
from automation_pipeline.pricing.stages.deliver_alerts import deliver_alerts
from automation_pipeline.pricing.stages.raise_alerts import raise_alerts


async def alert_about_prices(our: Services) -> str:
    settings = our.settings
    secret, warning = settings.webhook_secret, settings.pricing_alert_webhook_url
    urls = {
        AlertSeverity.WARNING: warning,
        AlertSeverity.CRITICAL: settings.pricing_critical_alert_webhook_url or warning,
    }
    webhooks = {severity: url for severity, url in urls.items() if url is not None}
    raised = await asyncio.to_thread(raise_alerts, database=our.database, clock=our.clock, webhooks=webhooks)
    tried = 0
    if webhooks:
        tried = await deliver_alerts(
            sender=our.webhooks,
            secret=secret.get_secret_value() if secret else None,
            webhooks=webhooks,
            patience=Patience(attempts=settings.webhook_max_attempts),
            database=our.database,
        )
    return f"Raised {len(raised)} alerts; tried {tried} webhooks."
