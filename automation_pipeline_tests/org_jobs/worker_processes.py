"""Functions that tests of the dispatcher call in other processes."""

import os
import signal
from datetime import datetime
from typing import Any

from automation_pipeline.core.metrics import Meter
from automation_pipeline.org_jobs import fires as dispatcher
from automation_pipeline.org_jobs.fires import fire_due_schedules
from automation_pipeline.org_jobs.queries.health import due_schedules
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.fakes.clock import FakeClock


def dispatch_until_nothing_is_due(url: str, now: datetime) -> int:
    """Return how many jobs this process dispatched."""
    database, dispatched = Database(url), 0
    try:
        while True:
            dispatched += fire_due_schedules(
                database=database, clock=FakeClock(now), meter=Meter()
            ).dispatched
            with database.reading() as session:
                if not due_schedules(session, now).count:
                    return dispatched
    finally:
        database.dispose()


def dispatch_and_be_killed(url: str, now: str, nth: int) -> None:
    """Kill the process in the nth round, after the last write and before the commit."""
    rounds, record_decided = 0, dispatcher.record_decided

    def record_and_die(*given: Any) -> None:
        nonlocal rounds
        record_decided(*given)
        rounds += 1
        if rounds == nth:
            os.kill(os.getpid(), signal.SIGKILL)

    dispatcher.record_decided = record_and_die
    dispatcher.FIRE_BATCH = 3
    dispatch_until_nothing_is_due(url, datetime.fromisoformat(now))
