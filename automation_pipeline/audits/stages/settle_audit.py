"""End an audit whose steps have all ended: score it, tell the world, count it in its batch."""

from dataclasses import replace

from automation_pipeline.audits.domain import events
from automation_pipeline.audits.domain.audit import AuditStatus, Standing
from automation_pipeline.audits.domain.failures import no_step_judged
from automation_pipeline.audits.domain.notes import audit_note
from automation_pipeline.audits.domain.result import tokens_of
from automation_pipeline.audits.stages.end_batch_item import end_batch_item
from automation_pipeline.audits.stages.fail_audit import fail_audit
from automation_pipeline.audits.store.audits import FoundAudit, get_audit, hold_audit, set_values
from automation_pipeline.audits.store.steps import stored_steps
from automation_pipeline.audits.store.summaries import summarise
from automation_pipeline.storage.database import Session
from automation_pipeline.storage.instants import database_time
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.workflow_logs import write_notes


def settle_audit(audit_id: int, token: int, session: Session) -> Standing:
    """How it stands then. One that has ended, or that somebody else works on by now, is left as it is."""
    is_ours = hold_audit(session, audit_id, token, database_time(session))
    found = get_audit(session, audit_id)
    return _settled(session, found) if is_ours else found.standing


def _settled(session: Session, found: FoundAudit) -> Standing:
    audit_id, now = found.standing.audit_id, database_time(session)
    steps = stored_steps(session, audit_id)
    audit, errors = found.standing, [step.finding.error for step in steps if step.finding.error is not None]
    tokens = tokens_of(steps)
    if len(errors) == len(steps):
        set_values(session, audit_id, {"total_tokens": tokens, "failed_steps": len(errors), "successful_steps": 0})
        fail_audit(session, audit.tracking_id, no_step_judged(errors[0]), "analysis")
        return get_audit(session, audit_id).standing
    compliance = summarise(session, found, steps, now, status=AuditStatus.COMPLETED)
    lasted = round(1000 * (now - found.started_at).total_seconds())
    enqueue(session, events.completed(audit, compliance, tokens, lasted, now))
    words = (
        f"END: {compliance.niveau}, {compliance.score_percentage} %, {compliance.failed_steps} step(s) not dealt with"
    )
    write_notes(session, audit_note(audit, words, data={"total_tokens": tokens, "failed": len(errors)}))
    end_batch_item(session, audit.tracking_id, None)
    score = float(compliance.score_percentage)
    return replace(audit, status=AuditStatus.COMPLETED, niveau=compliance.niveau, score_percentage=score)
