"""A round through all rooms: each takes away a batch at a time, with a pause after it in which others get to write."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from datetime import datetime

from automation_pipeline.bootstrap import Services
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import AutomationError
from automation_pipeline.housekeeping.chores import Chore, chores_of
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.instants import database_time
from automation_pipeline.storage.retention import BATCH, Look

# SQLite lets in who asks next, not who has waited longest: without a pause that would be us.
PAUSE_SECONDS = 0.05
# A million rows of a kind; what is left is for the next round.
MOST_LOOKS = 1000


async def go_round(services: Services, *, is_dry: bool = False, batch: int = BATCH) -> Mapping[str, int]:
    """How many rows of each kind went, or would. What fails in one room is raised after the others are through; a round
    that breaks off is gone on with by the next one, and two at once do each row once."""
    look = Look(_earlier(services.clock, services.database), batch, is_dry)
    gone: Counter[str] = Counter()
    broken: list[AutomationError] = []
    for chore in chores_of(services.settings, services.database):
        try:
            await _see_to(chore, look, gone)
        except AutomationError as error:
            broken.append(error)
    if broken:
        raise broken[0]
    return gone


async def _see_to(chore: Chore, look: Look, gone: Counter[str]) -> None:
    for _ in range(MOST_LOOKS):
        went = chore(look)
        gone.update(went)
        if look.is_dry or max(went.values(), default=0) < look.limit:
            return
        await asyncio.sleep(PAUSE_SECONDS)


def _earlier(clock: Clock, database: Database) -> datetime:
    """Of two clocks: one that is ahead makes nothing old."""
    with database.reading() as session:
        return min(clock.now(), database_time(session))
