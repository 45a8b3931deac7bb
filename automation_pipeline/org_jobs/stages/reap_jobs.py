"""Give up what nobody speaks for any more: lost workers and agents, what takes too long, and what nobody ever began."""

from collections.abc import Sequence
from dataclasses import dataclass

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.meter import Meter
from automation_pipeline.org_jobs.domain.agent_job import LEASE_SECONDS as AGENT_SECONDS
from automation_pipeline.org_jobs.domain.job_type import Performer
from automation_pipeline.org_jobs.domain.retry_policy import EXPIRED, STALE, TIME_LIMIT
from automation_pipeline.org_jobs.domain.states import RunState
from automation_pipeline.org_jobs.stages.count_ends import count_ends
from automation_pipeline.org_jobs.store.abandoned import abandoned_runs, free_unbegun
from automation_pipeline.org_jobs.store.endings import EndedRun, end_attempts
from automation_pipeline.org_jobs.store.expiries import lengthen_closed
from automation_pipeline.storage.database import Database

REAPER = "reaper"
AT_ONCE = 200


@dataclass(frozen=True)
class ReapReport:
    """How many attempts ended how, and how many runs were given back without one."""

    stale: int = 0
    too_long: int = 0
    expired: int = 0
    cancelled: int = 0
    freed: int = 0

    def __str__(self) -> str:
        words = f"{self.stale} stale, {self.too_long} too long, {self.expired} expired, {self.cancelled} cancelled"
        return f"Gave up {words}; {self.freed} free again."


def reap_jobs(*, database: Database, clock: Clock, meter: Meter, lease_seconds: float = 60.0) -> ReapReport:
    """So many at once, at most; the rest is for the next look. `lease_seconds` are those of this system's workers."""
    patience = {Performer.AGENT: AGENT_SECONDS, Performer.SERVICE: lease_seconds}
    now = clock.now()
    with database.transaction() as session:
        ends = abandoned_runs(session, patience, now, AT_ONCE)
        ended = end_attempts(session, ends, REAPER, now)
    with database.transaction() as session:
        freed = free_unbegun(session, AT_ONCE)
    with database.transaction() as session:
        lengthen_closed(session, now, AT_ONCE)
    count_ends(ended, meter=meter, now=now)
    return _report(ended, len(freed))


def _report(ended: Sequence[EndedRun], freed: int) -> ReapReport:
    codes = [one.end.error_code for one in ended]
    return ReapReport(
        stale=codes.count(STALE),
        too_long=codes.count(TIME_LIMIT),
        expired=codes.count(EXPIRED),
        cancelled=[one.end.status for one in ended].count(RunState.CANCELLED),
        freed=freed,
    )
