"""End the runs that nobody works on any more: what is left fails with the reason, and the fiche is free again."""

from collections.abc import Sequence

from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.workflow_logs import write_notes
from automation_pipeline.transcription.domain.notes import fiche_note
from automation_pipeline.transcription.stages.settle_recordings import settle_recordings
from automation_pipeline.transcription.store.runs import abandoned_runs
from automation_pipeline.transcription.store.tasks import fail_waiting_tasks


def sweep_transcriptions(silent_for_seconds: float, *, database: Database) -> Sequence[str]:
    """The ids of the runs that were ended. A run shows life whenever one of its recordings is worked on."""
    with database.reading() as session:
        abandoned = abandoned_runs(session, silent_for_seconds)
    for run_id, fiche_id in abandoned:
        with database.transaction() as session:
            _end(session, run_id, fiche_id, silent_for_seconds)
    return [run_id for run_id, _ in abandoned]


def _end(session: Session, run_id: str, fiche_id: str, silent_for_seconds: float) -> None:
    reason = f"Nobody has worked on this run for {silent_for_seconds / 60:.0f} minutes"
    failed = fail_waiting_tasks(session, run_id, None, reason)
    write_notes(session, fiche_note(run_id, fiche_id, f"SWEEP: {reason}", level="error", data={"failed": failed}))
    settle_recordings(session, run_id, processed=failed, failed=failed)
