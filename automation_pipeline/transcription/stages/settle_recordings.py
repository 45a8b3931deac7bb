"""Count recordings that have ended, emit their events, and end the run: with the last of them, or as failed."""

from dataclasses import replace

from automation_pipeline.storage.database import Session
from automation_pipeline.storage.instants import database_time
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.workflow_logs import write_notes
from automation_pipeline.transcription.domain import events
from automation_pipeline.transcription.domain.notes import run_note
from automation_pipeline.transcription.domain.run import RunStatus, Standing
from automation_pipeline.transcription.store.runs import count_recordings, end_run, hold_run, standing_of
from automation_pipeline.transcription.store.tasks import fail_waiting_tasks


def settle_recordings(
    session: Session, run_id: str, *, processed: int, cached: int = 0, failed: int = 0, progress_every: int = 1
) -> Standing:
    """In the transaction that ended them. Progress is told every so many recordings, and at the end."""
    now = database_time(session)
    standing, started_at = count_recordings(session, run_id, now, processed=processed, cached=cached, failed=failed)
    before = standing.processed - processed
    if standing.is_over or standing.processed // progress_every > before // progress_every:
        enqueue(session, [events.progress(standing, now)] if processed else [])
    if standing.is_over and standing.status is RunStatus.RUNNING:
        enqueue(session, events.completed(standing, started_at, now))
        end_run(session, run_id, RunStatus.COMPLETED)
        counts = {"new": standing.new, "cached": standing.cached, "failed": standing.failed}
        write_notes(session, run_note(standing, f"END: completed, {standing.failed} failed", data=counts))
        return replace(standing, status=RunStatus.COMPLETED)
    return standing


def fail_run(session: Session, run_id: str, reason: str) -> Standing:
    """End a run that cannot be attempted: its unended recordings fail with the reason. A run that has ended stays."""
    held = hold_run(session, run_id)
    if held.status != RunStatus.RUNNING:
        return standing_of(held)
    now, total = database_time(session), held.target_total
    failed = [(call, (place, total)) for call, place in fail_waiting_tasks(session, run_id, None, reason)]
    enqueue(session, events.recordings_failed(run_id, held.fiche_id, failed, reason, now))
    counted, _ = count_recordings(session, run_id, now, processed=len(failed), cached=0, failed=len(failed))
    end_run(session, run_id, RunStatus.FAILED, reason)
    standing = replace(counted, status=RunStatus.FAILED, error=reason)
    enqueue(session, events.failed(standing, reason, now))
    write_notes(session, run_note(standing, f"END: {reason}", level="error", data={"failed": len(failed)}))
    return standing
