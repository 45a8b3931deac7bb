"""End the runs that keep their schedules from running again although nobody works on them."""

from collections.abc import Iterable
from datetime import datetime

from automation_pipeline.automation.domain.at_work import Standing, UnendedRun, stale_mark, standing_of
from automation_pipeline.automation.domain.due import DueRules
from automation_pipeline.automation.stages.finalise_run import Closing, finalise_run
from automation_pipeline.automation.store.due import unmark_running, work_of_schedules
from automation_pipeline.automation.store.runs import watched_runs
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import AutomationError
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.pulses import DAEMON, seconds_since_beat

LOG = "Automation run marked stale by scheduler"
# A daemon that has not ticked for so long is not there: its sensors tick every five seconds.
DAEMON_GONE_SECONDS = 60.0


def reconcile_stale_runs(rules: DueRules, *, database: Database, clock: Clock) -> list[int]:
    """The schedules concerned. What cannot be ended now is left for the next time: it keeps nobody else waiting."""
    now = clock.now()
    with database.reading() as session:
        work = work_of_schedules(session, rules.lost_after_seconds)
    stale = {id_: one for id_, one in work.items() if standing_of(one, now, rules.stale_after) is Standing.STALE}
    _end((run for one in stale.values() for run in one.runs), rules, now, database, clock)
    marked = [id_ for id_, one in stale.items() if one.marked_running]
    if marked:
        with database.transaction() as session:
            unmark_running(session, marked)
    return list(stale)


def _end(runs: Iterable[UnendedRun], rules: DueRules, now: datetime, database: Database, clock: Clock) -> None:
    for run in runs:
        mark = stale_mark(run.started_at, now, rules.stale_after)
        try:
            finalise_run(
                run.id,
                database=database,
                clock=clock,
                attempt=run.attempt,
                breakdown=mark.message,
                closing=Closing(details=mark.details, log=LOG, counted=False),
            )
        except AutomationError:  # it has come back to life with a new attempt, or the database is away
            continue


def close_lost_runs(schedule_id: int, lost_after_seconds: float, *, database: Database, clock: Clock) -> list[int]:
    """The runs of the schedule that were closed: their process is lost, and no daemon runs that would request another
    attempt. Runs that wait for a daemon are left alone."""
    with database.reading() as session:
        since_tick = seconds_since_beat(session, DAEMON)
        if since_tick is not None and since_tick <= DAEMON_GONE_SECONDS:
            return []
        unended = [run for run in watched_runs(session) if run.schedule_id == schedule_id]
    lost = [run for run in unended if run.attempt > 0 and run.silent_seconds > lost_after_seconds]
    for run in lost:
        words = (
            f"The process that worked on it was lost: no sign of life since {run.last_sign_at:%Y-%m-%d %H:%M:%S} UTC"
        )
        finalise_run(run.run_id, database=database, clock=clock, attempt=run.attempt, breakdown=words)
    return [run.run_id for run in lost]
