"""What the relays of the tests do, each a process with its own connections to the database and to
Pusher."""

import asyncio
import os
from datetime import UTC, datetime

from sqlalchemy import update

from automation_pipeline.automation.relay import publish_events
from automation_pipeline.storage.claims import LeaseRow
from automation_pipeline_tests.clients.pusher.studio import channels
from automation_pipeline_tests.storage.processes import is_any_left, opened
from automation_pipeline_tests.waiting import pause

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


def relay_until_all_are_out(database_url: str, pusher_url: str) -> None:
    ours = channels(pusher_url)
    with opened(database_url) as database:
        while is_any_left(database):
            out = asyncio.run(
                publish_events(ours, f"relay {os.getpid()}", database=database, hold_seconds=60)
            )
            if not out:
                pause(0.02)
                with database.transaction() as session:
                    session.execute(
                        update(LeaseRow).values(acquired_at=LONG_AGO, expires_at=LONG_AGO)
                    )
