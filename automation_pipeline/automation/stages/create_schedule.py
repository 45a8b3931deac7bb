"""Store a new schedule."""

from collections.abc import Mapping

from automation_pipeline.automation.domain.schedule import Schedule, parse_schedule
from automation_pipeline.automation.store.schedules import add_schedule
from automation_pipeline.core.clock import Clock
from automation_pipeline.storage.database import Database


def create_schedule(given: Mapping[str, object], *, database: Database, clock: Clock) -> Schedule:
    schedule = parse_schedule(given)
    with database.transaction() as session:
        return add_schedule(session, schedule, clock.now())
