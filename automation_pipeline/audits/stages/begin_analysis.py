"""Decide how the model gets to read the calls, and tell that the analysis begins."""

from dataclasses import replace
from functools import partial

from automation_pipeline.audits.domain import events
from automation_pipeline.audits.domain.coverage import coverage_document, steps_sentence
from automation_pipeline.audits.domain.modes import TranscriptMode
from automation_pipeline.audits.domain.notes import audit_note
from automation_pipeline.audits.domain.prompt import StepTask
from automation_pipeline.audits.domain.reading_mode import mode_of
from automation_pipeline.audits.domain.result import running_document
from automation_pipeline.audits.domain.timeline import Timeline
from automation_pipeline.audits.ports import Judge
from automation_pipeline.audits.store.audits import FoundAudit, set_values, triggered_by, unfinished_before
from automation_pipeline.audits.store.calls import Heard
from automation_pipeline.audits.store.steps import adopt_steps, forget_steps
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.instants import database_time
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.workflow_logs import write_notes


async def begin_analysis(found: FoundAudit, heard: Heard, *, database: Database, judge: Judge) -> FoundAudit:
    """The audit as its analysis begins. Calls that do not fit into a prompt are read with tools, also when that was not
    asked for. Steps that are judged already stay judged, unless something else is heard by now."""
    mode = _mode(found, heard.timeline, judge)
    return await database.write(partial(_begin, replace(found, transcript_mode=mode), heard, judge.model.name))


def _begin(found: FoundAudit, heard: Heard, model: str, session: Session) -> FoundAudit:
    timeline, now = heard.timeline, database_time(session)
    found = _with_judged_steps(found, heard.fingerprint, session)
    audit = found.standing
    trigger = triggered_by(session, audit.audit_id)
    about = {"audit_id": audit.tracking_id, **trigger}
    recordings, chunks = len(timeline.recordings), timeline.chunk_count
    approach = {"use_rlm": found.use_rlm, "transcript_mode": found.transcript_mode}
    values = {
        "transcript_mode": found.transcript_mode,
        "recordings_count": recordings,
        "timeline_chunks": chunks,
        "timeline_fingerprint": heard.fingerprint,
        "coverage": coverage_document(heard.coverage),
        "result_data": running_document(about, found.started_at, approach),
    }
    set_values(session, audit.audit_id, values)
    enqueue(session, [
        events.transcription_check(audit, heard.coverage, now),
        *events.analysis_started(audit, recordings, chunks, model, now),
    ])  # fmt: skip
    words = (
        f"ANALYSE: {heard.coverage.sentence}, {chunks} chunks, transcript by {found.transcript_mode}, "
        f"{steps_sentence(audit.done, audit.steps)} before"
    )
    write_notes(session, audit_note(audit, words))
    return found


def _with_judged_steps(found: FoundAudit, fingerprint: str, session: Session) -> FoundAudit:
    """The steps of an earlier attempt at the same calls count; those that were judged on other calls do not."""
    audit, adopted = found.standing, 0
    if audit.done + audit.failed and found.timeline_fingerprint != fingerprint:
        forget_steps(session, audit.audit_id)
        audit = replace(audit, done=0, failed=0)
    if audit.done == 0 and found.version > 1:
        earlier = unfinished_before(session, found, fingerprint)
        adopted = 0 if earlier is None else adopt_steps(session, audit.audit_id, earlier)
    return replace(found, standing=replace(audit, done=audit.done + adopted))


def _mode(found: FoundAudit, timeline: Timeline, judge: Judge) -> TranscriptMode:
    tasks = (StepTask(config=found.config, step=step, timeline=timeline) for step in found.config.steps)
    return mode_of(found.transcript_mode, tasks, judge.knobs)
