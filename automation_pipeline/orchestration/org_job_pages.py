"""What people read in Dagster about a job of an organisation, and about a day of all of them."""

from collections.abc import Iterator, Mapping

import dagster as dg

from automation_pipeline.core.instants import iso
from automation_pipeline.orchestration import metadata
from automation_pipeline.orchestration.days import counts_table
from automation_pipeline.orchestration.markdown import table
from automation_pipeline.org_jobs.domain.day import Day
from automation_pipeline.org_jobs.domain.org_job import OrgJob
from automation_pipeline.org_jobs.domain.states import FireOutcome, RunState

_ENDS = (RunState.SUCCESS, RunState.FAILED, RunState.CANCELLED)

Page = dict[str, dg.MetadataValue]


def job_page(job: OrgJob) -> Page:
    run = job.runs[-1]
    texts = {
        "job": str(job.id),
        "type": job.type,
        "organisation": job.org_id,
        "status": str(job.status),
        "attempt": f"{run.attempt_no} of {run.max_attempts}",
        "schedule": job.schedule_id,
        "again_at": None if run.next_attempt_at is None else iso(run.next_attempt_at),
        "error": run.error,
    }
    return {name: metadata.text(text) for name, text in texts.items() if text}


def day_page(day: Day) -> Page:
    latency = day.mean_latency_seconds
    tables = {
        "skipped_because": _counts("reason", day.by_skip_reason),
        "jobs_by_state": _counts("state", day.by_state),
        "jobs_by_type": table(("type", "state", "jobs"), sorted(_types(day))),
        "organisations": table(
            ("organisation", "dispatched", "skipped", "failed", "jobs done", "jobs failed", "jobs cancelled"),
            (_cells(day, org_id) for org_id in day.organisations),
        ),
    }
    return {
        **{str(one).lower(): metadata.integer(day.by_outcome.get(one, 0)) for one in FireOutcome},
        "jobs": metadata.integer(sum(one.count for one in day.jobs)),
        **({} if latency is None else {"mean_latency_seconds": metadata.real(round(latency, 3))}),
        **{name: metadata.markdown(text) for name, text in tables.items() if text},
    }


def _types(day: Day) -> Iterator[tuple[str, str, int]]:
    counts: dict[tuple[str, str], int] = {}
    for one in day.jobs:
        counts[one.type, one.status] = counts.get((one.type, one.status), 0) + one.count
    return ((type_, state, count) for (type_, state), count in counts.items())


def _cells(day: Day, org_id: str) -> tuple[object, ...]:
    fires = [
        sum(one.count for one in day.fires if (one.org_id, one.outcome) == (org_id, state)) for state in FireOutcome
    ]
    jobs = [sum(one.count for one in day.jobs if (one.org_id, one.status) == (org_id, state)) for state in _ENDS]
    return org_id, *fires, *jobs


def _counts(of: str, counts: Mapping[str, int]) -> str:
    return counts_table(of, counts) if counts else ""
