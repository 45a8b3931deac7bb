"""AUTOMATION_RUN: a run of an automation schedule is asked for and followed to its end."""

from collections.abc import Mapping
from contextlib import suppress

from automation_pipeline.automation.domain.run import Run, RunStatus
from automation_pipeline.automation.stages.cancel_run import LONGEST_REASON, cancel_run
from automation_pipeline.automation.stages.request_run import request_run
from automation_pipeline.automation.store.progress import runs_by_id
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError, NotFoundError
from automation_pipeline.core.json_model import parse
from automation_pipeline.org_jobs.domain.endings import AttemptEnd, cancelled, succeeded
from automation_pipeline.org_jobs.domain.failures import NOT_FOUND
from automation_pipeline.org_jobs.domain.payloads_of_ours import AutomationRunPayload
from automation_pipeline.org_jobs.domain.retry_policy import FAILED
from automation_pipeline.org_jobs.domain.states import RunState
from automation_pipeline.org_jobs.ports import AskedJob
from automation_pipeline.storage.database import Database

RUN_ID = "automationRunId"


class AutomationRun:
    """A run that ended completed or partial is a success: what became of each fiche is its own story. One that an
    operator cancelled is cancelled. A schedule that has a run already is a conflict, and tried again."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock

    def start(self, asked: AskedJob) -> Mapping[str, object]:
        schedule_id = parse(AutomationRunPayload, asked.payload, "The stored payload is refused").schedule_id
        run = request_run(schedule_id, database=self._database, clock=self._clock)
        return {RUN_ID: str(run.id)}

    def look(self, followed: Mapping[int, Mapping[str, object]]) -> Mapping[int, AttemptEnd]:
        run_ids = {number: _run_id(following) for number, following in followed.items()}
        with self._database.reading() as session:
            runs = runs_by_id(session, set(run_ids.values()))
        ends = {number: _end(run_id, runs.get(run_id)) for number, run_id in run_ids.items()}
        return {number: end for number, end in ends.items() if end is not None}

    def cancel(self, following: Mapping[str, object], actor: str, reason: str | None = None) -> bool:
        words = f"{reason} ({actor})" if reason else f"by {actor}"
        with suppress(ConflictError, NotFoundError):  # it has ended, or is gone
            cancel_run(_run_id(following), database=self._database, clock=self._clock, reason=words[:LONGEST_REASON])
        return False


def _run_id(following: Mapping[str, object]) -> int:
    return int(str(following[RUN_ID]))


def _end(run_id: int, run: Run | None) -> AttemptEnd | None:
    if run is None:
        error = f"Automation run {run_id} is gone."
        return AttemptEnd(status=RunState.FAILED, error_code=NOT_FOUND, error=error)
    if run.completed_at is None:
        return None
    error = run.error_message or f"All {run.failed_fiches} fiches of automation run {run_id} failed."
    if run.status is RunStatus.CANCELLED:
        return cancelled(error)
    if run.status is not RunStatus.FAILED:
        return succeeded(_counters(run))
    return AttemptEnd(status=RunState.FAILED, error_code=FAILED, error=error, result=_counters(run))


def _counters(run: Run) -> dict[str, object]:
    return {
        RUN_ID: str(run.id),
        "status": run.status,
        "selected": run.selected_fiches,
        "successful": run.successful_fiches,
        "failed": run.failed_fiches,
        "ignored": run.ignored_fiches,
    }
