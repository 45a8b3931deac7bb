"""End an attempt at an audit: with its score when all of it could be judged, else as incomplete."""

from collections.abc import Sequence
from dataclasses import replace

from automation_pipeline.audits.domain import events
from automation_pipeline.audits.domain.audit import AuditStatus, Standing
from automation_pipeline.audits.domain.coverage import Coverage, coverage_document
from automation_pipeline.audits.domain.failures import steps_missing
from automation_pipeline.audits.domain.notes import audit_note
from automation_pipeline.audits.domain.result import incomplete_columns, tokens_of
from automation_pipeline.audits.domain.step_result import MissingStep, StoredStep
from automation_pipeline.audits.stages.end_batch_item import end_batch_item
from automation_pipeline.audits.store.audits import FoundAudit, get_audit, hold_audit, promote, set_values
from automation_pipeline.audits.store.steps import every_step
from automation_pipeline.audits.store.summaries import summarise
from automation_pipeline.storage.database import Session
from automation_pipeline.storage.instants import database_time
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.workflow_logs import write_notes

Steps = Sequence[StoredStep | MissingStep]


def settle_audit(audit_id: int, token: int, coverage: Coverage, session: Session) -> Standing:
    """How it stands then. One that has ended, or that another worker has taken, is left as it is."""
    is_mine = hold_audit(session, audit_id, token, database_time(session))
    found = get_audit(session, audit_id)
    if not is_mine:
        return found.standing
    steps = every_step(session, [audit_id])[audit_id]
    missing = [step for step in steps if isinstance(step, MissingStep)]
    if missing:
        reason = steps_missing(len(steps) - len(missing), found.standing.steps, missing[0].error)
        return _end_incomplete(session, found, coverage, steps, reason)
    return _complete(session, found, [step for step in steps if isinstance(step, StoredStep)])


def end_without_transcripts(audit_id: int, token: int, coverage: Coverage, reason: str, session: Session) -> Standing:
    """The same for one that waits for transcripts. Steps that an earlier attempt judged are kept."""
    is_mine = hold_audit(session, audit_id, token, database_time(session))
    found = get_audit(session, audit_id)
    if not is_mine:
        return found.standing
    return _end_incomplete(session, found, coverage, every_step(session, [audit_id])[audit_id], reason)


def _complete(session: Session, found: FoundAudit, steps: Sequence[StoredStep]) -> Standing:
    audit, now, tokens = found.standing, database_time(session), tokens_of(steps)
    compliance = summarise(session, found, steps, now, status=AuditStatus.COMPLETED)
    if not found.is_latest:
        promote(session, audit.audit_id)
    enqueue(session, events.completed(audit, compliance, tokens, _lasted(found, session), now))
    words = (
        f"END: {compliance.niveau}, {compliance.score_percentage} %, {compliance.failed_steps} step(s) not dealt with"
    )
    write_notes(session, audit_note(audit, words, data={"total_tokens": tokens}))
    end_batch_item(session, audit.tracking_id, None)
    score = float(compliance.score_percentage)
    return replace(audit, status=AuditStatus.COMPLETED, niveau=compliance.niveau, score_percentage=score)


def _end_incomplete(session: Session, found: FoundAudit, coverage: Coverage, steps: Steps, reason: str) -> Standing:
    now = database_time(session)
    audit = replace(found.standing, status=AuditStatus.INCOMPLETE, error=reason)
    values = {
        **incomplete_columns(audit, steps, coverage_document(coverage), found.started_at, now),
        "completed_at": now,
        "duration_ms": _lasted(found, session),
    }
    set_values(session, audit.audit_id, values)
    enqueue(session, [events.incomplete(audit, coverage, now)])
    write_notes(session, audit_note(audit, f"END: {reason}", level="error", data={"total_tokens": tokens_of(steps)}))
    end_batch_item(session, audit.tracking_id, reason)
    return audit


def _lasted(found: FoundAudit, session: Session) -> int:
    return round(1000 * (database_time(session) - found.started_at).total_seconds())
