"""Resume the schedules whose pause is over. They are due from now on."""

from collections.abc import Sequence

from automation_pipeline.core.clock import Clock
from automation_pipeline.org_jobs.store.ended_pauses import hold_ended_pauses, resume_held
from automation_pipeline.storage.database import Database

AT_ONCE = 250


def resume_paused_schedules(*, database: Database, clock: Clock) -> Sequence[str]:
    """Those that go on. Of an organisation that is suspended they wait for it; what is left is for the next look."""
    with database.transaction() as session:
        now = clock.now()
        return resume_held(session, hold_ended_pauses(session, now, AT_ONCE), now)
