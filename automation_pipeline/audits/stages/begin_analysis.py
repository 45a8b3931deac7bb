"""Decide how the model gets to read the calls, and tell that the analysis begins."""

from automation_pipeline.audits.domain import events
from automation_pipeline.audits.domain.modes import TranscriptMode
from automation_pipeline.audits.domain.notes import audit_note
from automation_pipeline.audits.domain.prompt import StepTask
from automation_pipeline.audits.domain.reading_mode import mode_of
from automation_pipeline.audits.domain.result import running_document
from automation_pipeline.audits.domain.timeline import Timeline
from automation_pipeline.audits.ports import Judge
from automation_pipeline.audits.store.audits import FoundAudit, set_values, triggered_by
from automation_pipeline.audits.store.calls import Heard
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.instants import database_time
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.workflow_logs import write_notes


async def begin_analysis(found: FoundAudit, heard: Heard, *, database: Database, judge: Judge) -> TranscriptMode:
    """Calls that do not fit into a prompt are read with tools, also when that was not asked for."""
    timeline, calls = heard.timeline, (heard.recordings, heard.transcribed)
    audit, mode = found.standing, _mode(found, timeline, judge)
    approach = {"use_rlm": found.use_rlm, "transcript_mode": mode}
    recordings, chunks = len(timeline.recordings), timeline.chunk_count

    def begin(session: Session) -> None:
        now = database_time(session)
        trigger = triggered_by(session, audit.audit_id)
        about = {"audit_id": audit.tracking_id, **trigger}
        values = {
            "transcript_mode": mode,
            "recordings_count": recordings,
            "timeline_chunks": chunks,
            "result_data": running_document(about, found.started_at, approach),
        }
        set_values(session, audit.audit_id, values)
        enqueue(session, [
            events.transcription_check(audit, *calls, now),
            *events.analysis_started(audit, recordings, chunks, judge.model.name, now),
        ])  # fmt: skip
        words = (
            f"ANALYSE: {recordings} recordings, {chunks} chunks, transcript by {mode}, {audit.done} steps done before"
        )
        write_notes(session, audit_note(audit, words))

    await database.write(begin)
    return mode


def _mode(found: FoundAudit, timeline: Timeline, judge: Judge) -> TranscriptMode:
    tasks = (StepTask(config=found.config, step=step, timeline=timeline) for step in found.config.steps)
    return mode_of(found.transcript_mode, tasks, judge.knobs)
