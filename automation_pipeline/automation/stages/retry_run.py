"""Ask for a new run over the fiches that failed in an earlier one, or for the whole of it again where it failed before
it had any. Ignored fiches were turned down, not failed."""

from automation_pipeline.automation.domain.run import Run, RunStatus, Trigger
from automation_pipeline.automation.domain.selection import FicheSelection, SelectionMode
from automation_pipeline.automation.stages.request_run import request_run
from automation_pipeline.automation.store.progress import failed_fiches
from automation_pipeline.automation.store.runs import get_run, order_of, selection_of
from automation_pipeline.automation.tables import RunRow
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError
from automation_pipeline.storage.database import Database


def retry_run(run_id: int, *, database: Database, clock: Clock) -> Run:
    """The new run, which waits for Dagster. ConflictError: the earlier one is at work, or nothing of it failed."""
    with database.reading() as session:
        run = get_run(session, run_id)
        if run.completed_at is None:
            raise ConflictError(f"Run {run_id} is still {run.status}: wait for its end, or cancel it first")
        row, fiche_ids = session.get_one(RunRow, run_id), failed_fiches(session, run_id)
        if fiche_ids:
            override = _only(fiche_ids, selection_of(session, row))
        elif run.status in (RunStatus.FAILED, RunStatus.CANCELLED):
            override = order_of(row)
        else:
            raise ConflictError(f"Run {run_id} has nothing to retry: no fiche failed")
    return request_run(
        run.schedule_id,
        database=database,
        clock=clock,
        override=override,
        trigger=Trigger.RETRY,
        due_at=run.due_at or (None if fiche_ids else run.started_at),  # relative days count back from there
        retry_of=run_id,
    )


def _only(fiche_ids: list[str], wanted: FicheSelection) -> FicheSelection:
    """Without `only_unaudited`: a fiche of which one of two audits failed counts as audited."""
    return FicheSelection(
        mode=SelectionMode.MANUAL,
        fiche_ids=tuple(fiche_ids),
        groupes=wanted.groupes,
        only_with_recordings=wanted.only_with_recordings,
        use_rlm=wanted.use_rlm,
        max_recordings_per_fiche=wanted.max_recordings_per_fiche,
    )
