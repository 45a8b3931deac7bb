"""Decide what to do about lost work. The watchdog collects the facts and applies the decisions.

Dagster itself does not retry these runs (`dagster/max_retries` is 0): it counts retries for the
whole group of runs, loses them when the code server restarts, and never retries `dagster job
execute`. The watchdog requests a lost launch again in the table `run_requests`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

import dagster as dg
from dagster import DagsterEventType, DagsterInstance, DagsterRunStatus, RunRecord

from automation_pipeline.automation.models.runs import RunStatus
from automation_pipeline.orchestration.dagster_internals import is_interrupt
from automation_pipeline.orchestration.job_registry import TERMINATED

ENDED = frozenset({DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED})
# The minimum time from the launch of a process to its first event, because it imports Dagster
# first.
SHORTEST_START_SECONDS = 45.0
# A launch that never started, for example during a restart of the code server, is repeated after 15
# s, 30 s ... 5 minutes.
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 15.0, 300.0
MOST_LAUNCHES = 50


class Engine(Enum):
    """The state of a Dagster run, or how it ended."""

    WAITS = "in Dagster's queue, or being launched"
    WORKS = "a process works on it, as far as is known"
    SUCCEEDED = "every step succeeded"
    FAILED = "a step failed with its own error"
    CRASHED = "its process ended without an error of a step"
    NEVER_STARTED = "its process could not be launched"
    CANCELED = "a user terminated it"


class Decision(Enum):
    LEAVE = "a process works on it, or will"
    REQUEST = "close the attempt and request the next one"
    FAIL = "close the run as failed"
    CANCEL = "close the run as cancelled"
    TERMINATE = "end its Dagster run"


@dataclass(frozen=True)
class Facts:
    """About an automation run and the newest Dagster run of its current launch. `engine` is None
    without a Dagster run. `request` is the state of the run's request, or None."""

    status: RunStatus
    engine: Engine | None
    silent_seconds: float = 0.0
    engine_seconds: float = 0.0
    request: str | None = "taken"
    launches: int = 1


def decide(facts: Facts, lost_after_seconds: float) -> Decision:
    if facts.status not in (RunStatus.PENDING, RunStatus.RUNNING):
        is_live = facts.engine in (Engine.WAITS, Engine.WORKS)
        return (
            Decision.TERMINATE
            if is_live and facts.status is RunStatus.CANCELLED
            else Decision.LEAVE
        )
    is_silent = facts.silent_seconds > lost_after_seconds
    if facts.engine is None:
        return _without_engine(facts, is_silent=is_silent)
    return {
        Engine.WAITS: Decision.LEAVE,
        Engine.WORKS: Decision.LEAVE,
        Engine.SUCCEEDED: Decision.FAIL if is_silent else Decision.LEAVE,
        Engine.FAILED: Decision.FAIL,
        Engine.CRASHED: Decision.REQUEST,
        Engine.NEVER_STARTED: _never_started(facts),
        Engine.CANCELED: Decision.CANCEL,
    }[facts.engine]


def _never_started(facts: Facts) -> Decision:
    if facts.launches >= MOST_LAUNCHES:
        return Decision.FAIL
    return (
        Decision.REQUEST if facts.engine_seconds > launch_pause(facts.launches) else Decision.LEAVE
    )


def _without_engine(facts: Facts, *, is_silent: bool) -> Decision:
    """Dagster has no run for it yet, or does not know the run, because `dagster job execute` may
    have used another instance."""
    if facts.request == "waiting":
        return Decision.LEAVE
    if facts.request == "refused" and facts.status is RunStatus.PENDING:
        return Decision.FAIL
    return Decision.REQUEST if is_silent else Decision.LEAVE


def launch_pause(launches: int) -> float:
    return min(FIRST_PAUSE_SECONDS * 2 ** (launches - 1), LONGEST_PAUSE_SECONDS)


def is_process_lost(
    status: DagsterRunStatus, silent_seconds: float, lost_after_seconds: float
) -> bool:
    """For a Dagster run in progress: whether its last heartbeat, or its start, is too long ago."""
    if status is DagsterRunStatus.STARTING:
        return silent_seconds > max(2 * lost_after_seconds, SHORTEST_START_SECONDS)
    return (
        status in (DagsterRunStatus.STARTED, DagsterRunStatus.CANCELING)
        and silent_seconds > lost_after_seconds
    )


@dataclass(frozen=True)
class Ending:
    """The state of a Dagster run, and the reason if it ended."""

    engine: Engine
    reason: str = ""


def ending_of(record: RunRecord, instance: DagsterInstance) -> Ending:
    run = record.dagster_run
    match run.status:
        case DagsterRunStatus.SUCCESS:
            return Ending(
                Engine.SUCCEEDED, "The Dagster run succeeded without ending the automation run"
            )
        case DagsterRunStatus.CANCELED:
            return Ending(Engine.CANCELED, TERMINATED)
        case DagsterRunStatus.FAILURE:
            return _failure(record, instance)
        case DagsterRunStatus.STARTED | DagsterRunStatus.CANCELING:
            return Ending(Engine.WORKS)
        case _:
            return Ending(Engine.WAITS)


def _failure(record: RunRecord, instance: DagsterInstance) -> Ending:
    run_id = record.dagster_run.run_id
    failures = instance.all_logs(run_id, of_type=DagsterEventType.STEP_FAILURE)
    own = first_own_error(entry.dagster_event for entry in failures if entry.dagster_event)
    if own is not None:
        return Ending(Engine.FAILED, own)
    ends = instance.all_logs(run_id, of_type=DagsterEventType.RUN_FAILURE)
    reason = (
        next((entry.message or entry.user_message for entry in reversed(ends)), "")
        or "its process ended"
    )
    if record.start_time is None:
        return Ending(Engine.NEVER_STARTED, reason)
    if _was_interrupted_by_hand(record):
        return Ending(Engine.CANCELED, "`dagster job execute` was interrupted")
    return Ending(Engine.CRASHED, reason)


def first_own_error(failures: Iterable[dg.DagsterEvent]) -> str | None:
    """The step's own message. A step whose process died or was interrupted has none."""
    for event in failures:
        data = event.step_failure_data
        if data.user_failure_data and data.user_failure_data.description:
            return data.user_failure_data.description
        if is_interrupt(data) or data.error is None:
            continue
        if data.error.cls_name != "ChildProcessCrashException":
            return data.error.message.strip()
    return None


def _was_interrupted_by_hand(record: RunRecord) -> bool:
    """Ctrl-C on `dagster job execute`. For a run of the daemon, an interrupt means that its host
    stops, not that a user ends the run."""
    run = record.dagster_run
    return (
        run.remote_job_origin is None
        and run.tags.get("dagster/failure_reason") == "UNEXPECTED_TERMINATION"
    )
