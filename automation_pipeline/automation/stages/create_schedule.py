"""Store a new schedule."""

from collections.abc import Collection, Mapping

from automation_pipeline.automation.domain.schedule import INVALID_SCHEDULE, Schedule, parse_schedule
from automation_pipeline.automation.domain.webhook import check_webhook_url
from automation_pipeline.automation.stages.check_audit_configs import check_audit_configs
from automation_pipeline.automation.store.schedules import add_schedule
from automation_pipeline.core.clock import Clock
from automation_pipeline.storage.database import Database


def create_schedule(
    given: Mapping[str, object], *, database: Database, clock: Clock, webhook_origins: Collection[str] = ()
) -> Schedule:
    """It has decided upon no due time yet: one just gone by fires at once while the scheduler's window holds it.
    Without `webhook_origins` a webhook may be at any public address."""
    schedule = parse_schedule(given)
    check_webhook_url(schedule.webhook_url, webhook_origins)
    with database.transaction() as session:
        check_audit_configs(session, schedule.specific_audit_configs, INVALID_SCHEDULE)
        return add_schedule(session, schedule, clock.now())
