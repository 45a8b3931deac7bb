"""Domain events and metric names of schedules and job runs."""

from collections.abc import Mapping
from datetime import datetime

from automation_pipeline.core.events import Event
from automation_pipeline.org_jobs.models.jobs import PRODUCER

FIRES = "schedules_fire_count_total"
FIRE_LATENCY_MS = "schedules_fire_latency_ms"
RUN_DURATION_MS = "job_run_duration_ms"
RETRIES = "job_run_retries_total"
STALE_RUNS = "job_run_stale_total"
ENDED_RUNS = "job_run_count_total"


def schedule_event(
    org_id: str,
    schedule_id: str,
    name: str,
    change: str,
    now: datetime,
    payload: Mapping[str, object] | None = None,
) -> Event:
    """For example `schedule.paused`. `change` distinguishes it from other events of that name."""
    about = {"scheduleId": schedule_id, "orgId": org_id, **(payload or {})}
    key, aggregate = f"schedule:{schedule_id}:{name}:{change}", f"org-schedule-{schedule_id}"
    return Event(org_id, key, f"schedule.{name}", PRODUCER, aggregate, now, about)


def run_event(
    org_id: str,
    run_id: int,
    attempt_no: int,
    name: str,
    now: datetime,
    payload: Mapping[str, object],
) -> Event:
    """For example `job_run.started`, once per attempt."""
    about = {"jobRunId": str(run_id), "orgId": org_id, "attemptNo": attempt_no, **payload}
    key = f"job_run:{run_id}:{attempt_no}:{name}"
    return Event(org_id, key, f"job_run.{name}", PRODUCER, f"org-job-run-{run_id}", now, about)
