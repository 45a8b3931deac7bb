"""End a run because an operator says so. Its steps find their attempt fenced off; Dagster is told by the watchdog."""

from automation_pipeline.automation.domain.run import Reason, Run, RunStatus
from automation_pipeline.automation.stages.finalise_run import Closing, finalise_run
from automation_pipeline.automation.store.progress import CANCELLED_WORDS
from automation_pipeline.automation.store.runs import get_run
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError, InvalidInputError
from automation_pipeline.storage.database import Database

LONGEST_REASON = 500
CANCELLED = Closing(CANCELLED_WORDS, Reason.CANCELLED, status=RunStatus.CANCELLED)


def cancel_run(run_id: int, *, database: Database, clock: Clock, reason: str | None = None) -> Run:
    """The cancelled run. Fiches that had not ended are ignored. ConflictError: the run has already ended."""
    words = _words(reason)
    with database.reading() as session:
        _refuse_ended(get_run(session, run_id))
    run = finalise_run(run_id, database=database, clock=clock, breakdown=words, closing=CANCELLED)
    if run.error_message != words:  # it ended by itself just before
        _refuse_ended(run)
    return run


def _words(reason: str | None) -> str:
    given = " ".join((reason or "").split())
    if len(given) > LONGEST_REASON:
        raise InvalidInputError("The run stays", (("reason", f"is longer than {LONGEST_REASON} characters"),))
    if "\0" in given:
        raise InvalidInputError("The run stays", (("reason", "must not hold the character NUL"),))
    return f"{CANCELLED_WORDS}: {given}" if given else CANCELLED_WORDS


def _refuse_ended(run: Run) -> None:
    if run.completed_at is not None:
        raise ConflictError(f"Run {run.id} has already ended ({run.status})")
