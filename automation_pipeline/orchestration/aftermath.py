"""What is to be done about an automation run whose Dagster run may be dead. The instance is asked, the rule is pure."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum

import dagster as dg
from dagster import DagsterInstance, DagsterRun, DagsterRunStatus, RunRecord, RunsFilter

AUTO_RETRY_TAG = "dagster/auto_retry_run_id"
WILL_RETRY_TAG = "dagster/will_retry"

ENDED = frozenset({DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED})


class Aftermath(Enum):
    LEAVE = "it works, or will be tried again by itself"
    CLOSE = "nobody works on it and nobody will"
    REPORT_DEAD = "Dagster believes it alive, but it has been silent for too long"


def aftermath(status: DagsterRunStatus | None, *, will_retry: bool | None, silent: bool) -> Aftermath:
    """`status` is that of the newest Dagster run of the chain; None when Dagster does not know it. `will_retry` is None
    while Dagster has not said: it writes a failure down before it decides about a retry."""
    if status is None:
        return Aftermath.CLOSE if silent else Aftermath.LEAVE
    if status is DagsterRunStatus.FAILURE and will_retry is None and not silent:
        return Aftermath.LEAVE
    if status in ENDED:
        return Aftermath.LEAVE if will_retry else Aftermath.CLOSE
    if status is DagsterRunStatus.STARTED and silent:
        return Aftermath.REPORT_DEAD
    return Aftermath.LEAVE


def newest_of_chain(instance: DagsterInstance, dagster_run_id: str) -> RunRecord | None:
    """The Dagster run that automatic retries have led to."""
    record = instance.get_run_record_by_id(dagster_run_id)
    while record is not None and (retry := record.dagster_run.tags.get(AUTO_RETRY_TAG)):
        newer = instance.get_run_record_by_id(retry)
        if newer is None:
            break
        record = newer
    return record


def newest_for(instance: DagsterInstance, tags: Mapping[str, str]) -> RunRecord | None:
    """The newest Dagster run with these tags."""
    records = instance.get_run_records(RunsFilter(tags=dict(tags)), limit=1)
    return records[0] if records else None


def will_retry(run: DagsterRun) -> bool | None:
    said = run.tags.get(WILL_RETRY_TAG)
    return None if said is None else said == "true"


def silent_since(beat_at: datetime, record: RunRecord | None) -> datetime:
    """A retry that has just started has not had the time to beat."""
    started = datetime.fromtimestamp(record.start_time, UTC) if record and record.start_time else beat_at
    return max(beat_at, started)


def failure_reason(steps: Sequence[dg.DagsterEvent], fallback: str) -> str:
    """The first failed step's own words."""
    for event in steps:
        data = event.step_failure_data
        if data.user_failure_data and data.user_failure_data.description:
            return data.user_failure_data.description
        if data.error:
            return data.error.message.strip()
    return fallback
