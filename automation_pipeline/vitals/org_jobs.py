"""The numbers of organisations' schedules and jobs on the metrics page: as many queries whatever there is to count."""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime

from automation_pipeline.org_jobs.domain.job_type import Performer
from automation_pipeline.org_jobs.domain.measures import (
    DURATION_MS,
    ENDED_RUNS,
    FIRES,
    LATENCY_MS,
    RETRIES,
    STALE_RUNS,
)
from automation_pipeline.org_jobs.domain.states import ScheduleState
from automation_pipeline.org_jobs.store.gauges import ActiveRuns, active_runs, due_schedules, schedules_by_state
from automation_pipeline.storage.database import Session
from automation_pipeline.vitals.gauge import Gauge, Sample, single

# Counted as the work is done; see `storage.measures`.
WORDS = {
    FIRES: "Due times of schedules that were decided upon, by outcome and why they were left out",
    RETRIES: "Attempts of jobs that are tried again",
    STALE_RUNS: "Attempts of jobs that were given up because nothing was heard of them",
    ENDED_RUNS: "Runs of jobs that have ended for good",
}
# The same, of lengths of time.
SPREADS = {
    LATENCY_MS: "From when jobs were due until they were dispatched",
    DURATION_MS: "How long attempts of jobs took",
}


def org_job_gauges(session: Session, now: datetime) -> Iterator[Gauge]:
    due, states = due_schedules(session, now), schedules_by_state(session)
    yield single("schedules_due_backlog", "Schedules that are due and were not decided upon yet", due.count)
    yield single(
        "schedules_oldest_due_age_seconds", "Since the oldest of those is due; 0: there is none", due.age_seconds
    )
    by_state = [Sample({"state": state}, states.get(state, 0)) for state in ScheduleState]
    yield Gauge("schedules_state", "Schedules by their state", by_state)
    yield from _of_runs(active_runs(session))


def _of_runs(active: Sequence[ActiveRuns]) -> Iterator[Gauge]:
    """The page is for everybody: it names no organisation."""
    waiting, queues, running = Counter[str](), Counter[str](), 0
    for one in active:
        waiting[one.performer] += one.waiting
        queues[one.org_id] += one.waiting
        running += one.running
    by_performer = [Sample({"performer": performer}, waiting[performer]) for performer in Performer]
    yield Gauge("org_jobs_queue_depth", "Runs of jobs that wait to be begun, or tried again", by_performer)
    yield single(
        "org_jobs_queue_depth_max",
        "The same of the organisation that has most of them",
        max(queues.values(), default=0),
    )
    yield single("org_jobs_running", "Runs of jobs at work", running)
