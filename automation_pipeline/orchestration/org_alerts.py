"""One look at how organisations' jobs fare: what is wrong is raised, and what was raised is carried to the webhook."""

import asyncio

from automation_pipeline.bootstrap import Services
from automation_pipeline.core.delivery import Patience
from automation_pipeline.org_jobs.stages.deliver_org_alerts import deliver_org_alerts
from automation_pipeline.org_jobs.stages.raise_org_alerts import raise_org_alerts


async def alert_about_jobs(our: Services) -> str:
    settings = our.settings
    url, secret = settings.org_jobs_alert_webhook_url, settings.webhook_secret
    raised = await asyncio.to_thread(
        raise_org_alerts, database=our.database, clock=our.clock, has_webhook=url is not None
    )
    tried = 0
    if url is not None:
        tried = await deliver_org_alerts(
            webhooks=our.webhooks,
            secret=secret.get_secret_value() if secret else None,
            url=url,
            patience=Patience(attempts=settings.webhook_max_attempts),
            database=our.database,
        )
    return f"Raised {len(raised)} alerts; tried {tried} webhooks."
