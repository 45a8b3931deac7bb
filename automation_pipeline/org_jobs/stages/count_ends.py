"""Count attempts that have ended: how their runs ended or come again, and how long they took."""

from collections.abc import Sequence
from datetime import datetime

from automation_pipeline.core.meter import Meter
from automation_pipeline.core.spread import observe
from automation_pipeline.org_jobs.domain.measures import DURATION_MS, ENDED_RUNS, RETRIES, STALE_RUNS
from automation_pipeline.org_jobs.domain.retry_policy import STALE
from automation_pipeline.org_jobs.domain.states import RunState
from automation_pipeline.org_jobs.store.endings import EndedRun


def count_ends(ended: Sequence[EndedRun], *, meter: Meter, now: datetime) -> None:
    """After the commit."""
    for one in ended:
        if one.is_final:
            meter.count(ENDED_RUNS, status=one.decided.state, type=one.job.type)
        else:
            meter.count(RETRIES, type=one.job.type)
        if one.end.error_code == STALE:
            meter.count(STALE_RUNS, type=one.job.type)
        if one.was is RunState.RUNNING and one.run.started_at is not None:
            observe(meter, DURATION_MS, max((now - one.run.started_at).total_seconds(), 0.0) * 1000)
