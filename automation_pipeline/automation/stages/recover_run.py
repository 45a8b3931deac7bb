"""Request the next attempt at a run whose process was lost, or close the run when its attempts make no progress."""

from dataclasses import dataclass
from datetime import datetime

from automation_pipeline.automation.domain.run import MOST_FRUITLESS_ATTEMPTS, RunStatus
from automation_pipeline.automation.stages.finalise_run import finalise_run
from automation_pipeline.automation.stages.request_run import file_run_request
from automation_pipeline.automation.store.progress import ledger_progress
from automation_pipeline.automation.store.runs import WatchedRun, lock_run, write_log
from automation_pipeline.automation.tables import RunRow
from automation_pipeline.core.clock import Clock
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.run_requests import request_again


@dataclass(frozen=True)
class Lost:
    """A launch of a run that is over without having ended the run. `began`: its process had begun to work."""

    run: WatchedRun
    reason: str
    began: bool = True


def request_next_attempt(lost: Lost, *, database: Database, clock: Clock) -> str | None:
    """What was done about it, in a sentence. None: somebody else was first."""
    now = clock.now()
    with database.transaction() as session:
        row = lock_run(session, lost.run.run_id)
        if row.completed_at is not None or row.attempt != lost.run.attempt:
            return None
        if not _request(session, row, lost.run.launch, now):
            return None
        if lost.began:
            _count(session, row)
        is_given_up = row.fruitless_attempts >= MOST_FRUITLESS_ATTEMPTS
        if not is_given_up:
            details = {"dagsterRunId": row.dagster_run_id, "reason": lost.reason}
            write_log(session, row.id, now, "warning", f"{_what(row)} was lost: another attempt is requested", details)
            return f"Requested another attempt at run {row.id}"
    words = f"{MOST_FRUITLESS_ATTEMPTS} attempts in a row were lost without progress. The last one: {lost.reason}"
    finalise_run(lost.run.run_id, database=database, clock=clock, attempt=lost.run.attempt, breakdown=words)
    return f"Closed run {lost.run.run_id}"


def _request(session: Session, row: RunRow, launch: int | None, now: datetime) -> bool:
    """A run that was not launched for a request, as by `dagster job execute`, gets one for its second launch."""
    if row.request_key is not None:
        return launch is not None and request_again(session, row.request_key, launch)
    file_run_request(session, row, now, launch=2)
    return True


def _count(session: Session, row: RunRow) -> None:
    """Only attempts that were lost without any progress count, and only in a row."""
    progress = ledger_progress(session, row.id)
    row.fruitless_attempts = 0 if progress > row.progress_mark else row.fruitless_attempts + 1
    row.progress_mark = progress


def _what(row: RunRow) -> str:
    return f"Attempt {row.attempt}" if row.status == RunStatus.RUNNING else "The run, before its first attempt,"
