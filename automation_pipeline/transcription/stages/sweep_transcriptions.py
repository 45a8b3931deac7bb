"""End the runs that nobody works on any more: what is left fails with the reason, and the fiche is free again."""

from collections.abc import Sequence

from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.instants import database_time
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.workflow_logs import write_notes
from automation_pipeline.transcription.domain import events
from automation_pipeline.transcription.domain.notes import fiche_note
from automation_pipeline.transcription.stages.settle_recordings import fail_run, settle_recordings
from automation_pipeline.transcription.store.runs import abandoned_runs, hold_run, is_abandoned
from automation_pipeline.transcription.store.tasks import fail_waiting_tasks


def sweep_transcriptions(silent_for_seconds: float, *, database: Database) -> Sequence[str]:
    """The ids of the runs that were ended. A run shows life whenever one of its recordings is worked on."""
    with database.reading() as session:
        abandoned = abandoned_runs(session, silent_for_seconds)
    ended: list[str] = []
    for run_id, fiche_id in abandoned:
        with database.transaction() as session:
            if is_abandoned(hold_run(session, run_id), database_time(session), silent_for_seconds):
                _end(session, run_id, fiche_id, silent_for_seconds)
                ended.append(run_id)
    return ended


def _end(session: Session, run_id: str, fiche_id: str, silent_for_seconds: float) -> None:
    reason = f"Nobody has worked on this run for {silent_for_seconds / 60:.0f} minutes"
    now, held = database_time(session), hold_run(session, run_id)
    if held.target_total == 0:
        fail_run(session, run_id, reason)
        return
    failed = [(call, (place, held.target_total)) for call, place in fail_waiting_tasks(session, run_id, None, reason)]
    enqueue(session, events.recordings_failed(run_id, fiche_id, failed, reason, now))
    data = {"failed": len(failed)}
    write_notes(session, fiche_note(run_id, fiche_id, f"SWEEP: {reason}", level="error", data=data))
    standing = settle_recordings(session, run_id, processed=len(failed), failed=len(failed))
    if not standing.is_over:
        # Recordings went away under the run: its counters can no longer add up, but it ends all the same.
        fail_run(session, run_id, reason)
