"""End the runs of schedules that have been at work for too long with nobody working, so that they can be due again."""

from collections.abc import Iterable
from datetime import datetime

from automation_pipeline.automation.domain.at_work import Standing, UnendedRun, stale_mark, standing_of
from automation_pipeline.automation.domain.due import DueRules
from automation_pipeline.automation.stages.finalise_run import Closing, finalise_run
from automation_pipeline.automation.store.due import unmark_running, work_of_schedules
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import AutomationError
from automation_pipeline.storage.database import Database

LOG = "Automation run marked stale by scheduler"


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
