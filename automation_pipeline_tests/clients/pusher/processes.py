"""Work of the relay processes in these tests. Each process has its own database and Pusher clients."""

import asyncio
import os
from datetime import UTC, datetime

from sqlalchemy import update

from automation_pipeline.automation.relay import publish_events
from automation_pipeline.storage.claims import LeaseRow
from automation_pipeline_tests.clients.pusher.pusher_client import channels
from automation_pipeline_tests.storage.processes import is_any_left, opened
from automation_pipeline_tests.waiting import pause

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


def relay_until_all_published(database_url: str, pusher_url: str) -> None:
    pusher = channels(pusher_url)
    with opened(database_url) as database:
        while is_any_left(database):
            published = asyncio.run(
                publish_events(pusher, f"relay {os.getpid()}", database=database, hold_seconds=60)
            )
            if not published:
                pause(0.02)
                with database.transaction() as session:
                    session.execute(
                        update(LeaseRow).values(acquired_at=LONG_AGO, expires_at=LONG_AGO)
                    )
