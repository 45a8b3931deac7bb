"""Audits: an audit judges the calls of a fiche by the steps of a configuration, and grades them."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import TypeAlias

from automation_pipeline.audits import events
from automation_pipeline.audits.events import audit_note
from automation_pipeline.audits.judging import begin_analysis, judge_steps
from automation_pipeline.audits.models.audits import (
    AuditRecord,
    AuditStatus,
    AuditSummary,
    FicheAuditRequest,
    TranscriptCoverage,
    TranscriptSnapshot,
)
from automation_pipeline.audits.models.findings import MissingStep, StoredStep
from automation_pipeline.audits.ports import Judge, audit_key
from automation_pipeline.audits.queries.audits import (
    begin_audit,
    claim_audit,
    find_audit,
    get_audit,
    lock_running_audit,
    promote,
    stale_audits,
    update_audit_row,
)
from automation_pipeline.audits.queries.configs import check_config, get_config
from automation_pipeline.audits.queries.requests import end_item, pending_items
from automation_pipeline.audits.queries.steps import all_steps
from automation_pipeline.audits.queries.transcripts import (
    get_transcript_snapshot,
    last_transcription_error,
)
from automation_pipeline.audits.rules.results import (
    fiche_not_found,
    incomplete_columns,
    nothing_to_judge,
    steps_sentence,
    summary_columns,
    tokens_of,
    transcripts_missing,
)
from automation_pipeline.audits.rules.verdicts import score_audit
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.coordination import Claims
from automation_pipeline.core.errors import (
    AutomationError,
    InfrastructureError,
    TransientError,
    sentence_of,
)
from automation_pipeline.fiches.details import fetch_fiche
from automation_pipeline.fiches.models.fiches import FicheNotFound
from automation_pipeline.fiches.ports import FicheSource
from automation_pipeline.fiches.queries.details import known_since
from automation_pipeline.storage.clock import database_time
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.run_requests import refusals
from automation_pipeline.storage.workflow_logs import write_notes

# Details that are newer than this are not fetched again.
FRESH_FOR = timedelta(minutes=30)
SWEEP_LIMIT = 500

EnsureTranscribed: TypeAlias = Callable[[str], Awaitable[object]]


async def audit_fiche(
    request: FicheAuditRequest,
    *,
    database: Database,
    source: FicheSource,
    ensure_transcribed: EnsureTranscribed,
    judge: Judge,
    clock: Clock,
) -> AuditSummary:
    """Audit the fiche and return the ended audit. `ensure_transcribed` transcribes a fiche's recordings.

    Repeated after a crash or for an incomplete audit, it continues with what is missing. Two
    workers on one audit wait for each other. Raises NotFoundError for an unknown configuration.
    """
    found = await _open_audit(request, database, source, clock)
    if found.summary.is_final:
        return found.summary
    audit_id, options = found.summary.audit_id, judge.options
    owner = judge.semaphore.owner
    async with judge.claims.hold(audit_key(audit_id), owner, options.lease_seconds) as claim:
        found, snapshot = await database.write(partial(_claim, audit_id, claim.token))
        if found.summary.is_final:
            return found.summary
        cause = None
        if not snapshot.coverage.is_whole:
            snapshot, cause = await _complete_transcripts(found, ensure_transcribed, database)
        return await _judge(found, snapshot, claim.token, cause, database, judge)


async def _open_audit(
    request: FicheAuditRequest, database: Database, source: FicheSource, clock: Clock
) -> AuditRecord:
    """Return the request's audit, started if it is new. It fails if the CRM does not know the fiche."""
    since = clock.now() - FRESH_FOR
    existing = await database.write(partial(_begin_if_fresh, request, since, clock.now()))
    if existing is not None:
        return existing
    outcome = await fetch_fiche(
        request.fiche_id, since=since, database=database, source=source, clock=clock
    )
    known = not isinstance(outcome, FicheNotFound)
    return await database.write(partial(_begin_audit, request, known=known))


def _begin_if_fresh(
    request: FicheAuditRequest, since: datetime, now: datetime, session: Session
) -> AuditRecord | None:
    """Start the audit, or return None when the CRM has to be asked first."""
    existing = find_audit(session, request.tracking_id)
    if existing is not None:
        return existing
    fresh = known_since(session, [request.fiche_id], since, now)
    if fresh:
        return _begin_audit(request, session, known=not isinstance(fresh[0], FicheNotFound))
    check_config(session, request.audit_config_id)  # before the call to the CRM
    return None


def _begin_audit(request: FicheAuditRequest, session: Session, *, known: bool) -> AuditRecord:
    config, now = get_config(session, request.audit_config_id).config, database_time(session)
    found = begin_audit(session, request, config, now)
    enqueue(session, events.started(found.summary, config, now))
    message = (
        f"START: {config.name}, {len(config.steps)} steps, "
        f"asked for by {request.trigger_source or 'nobody in particular'}"
    )
    write_notes(session, audit_note(found.summary, message))
    if known:
        return found
    fail_audit(session, request.tracking_id, fiche_not_found(request.fiche_id), "fiche_not_found")
    return get_audit(session, found.summary.audit_id)


def _claim(audit_id: int, token: int, session: Session) -> tuple[AuditRecord, TranscriptSnapshot]:
    """Claim the audit and read the present transcripts."""
    taken, found = claim_audit(session, audit_id, token), get_audit(session, audit_id)
    if not taken and not found.summary.is_final:
        raise TransientError(f"Another worker has claimed audit {audit_id}.")
    return found, get_transcript_snapshot(session, found.summary.fiche_id)


async def _complete_transcripts(
    found: AuditRecord, ensure_transcribed: EnsureTranscribed, database: Database
) -> tuple[TranscriptSnapshot, str | None]:
    """Return the transcripts, and why some are missing. InfrastructureError is not a cause; it is raised."""
    fiche_id, cause = found.summary.fiche_id, None
    try:
        await ensure_transcribed(fiche_id)
    except InfrastructureError:
        raise
    except AutomationError as error:
        cause = sentence_of(error)
    with database.reading() as session:
        snapshot = get_transcript_snapshot(session, fiche_id)
        if cause is None and not snapshot.coverage.is_whole:
            cause = last_transcription_error(session, fiche_id)
    return snapshot, cause


async def _judge(
    found: AuditRecord,
    snapshot: TranscriptSnapshot,
    token: int,
    cause: str | None,
    database: Database,
    judge: Judge,
) -> AuditSummary:
    """Judge the audit only if every recording has a transcript: part of the calls gives no verdict."""
    audit, coverage = found.summary, snapshot.coverage
    settle = partial(_settle, audit.audit_id, token, coverage)
    if not coverage.is_whole:
        reason = transcripts_missing(audit.fiche_id, coverage, cause)
        return await database.write(partial(settle, reason))
    if not snapshot.timeline.recordings:
        with database.transaction() as session:
            reason = nothing_to_judge(audit.fiche_id, coverage)
            fail_audit(session, audit.tracking_id, reason, "missing_transcription")
            return get_audit(session, audit.audit_id).summary
    found = await begin_analysis(found, snapshot, database=database, judge=judge)
    await judge_steps(found, snapshot, token, database=database, judge=judge)
    return await database.write(partial(settle, None))


def _settle(
    audit_id: int,
    token: int,
    coverage: TranscriptCoverage,
    reason: str | None,
    session: Session,
) -> AuditSummary:
    """Complete the audit, or end it as incomplete, for the `reason` or because a step is missing. An ended
    audit and one of another worker stay."""
    is_held = lock_running_audit(session, audit_id, token, database_time(session))
    found = get_audit(session, audit_id)
    if not is_held:
        return found.summary
    steps = all_steps(session, [audit_id])[audit_id]
    missing = [step for step in steps if isinstance(step, MissingStep)]
    if missing and reason is None:
        judged = steps_sentence(len(steps) - len(missing), found.summary.steps)
        reason = f"Audit incomplete: {judged}: {missing[0].error}"
    if reason is not None:
        return _end_incomplete(session, found, coverage, steps, reason)
    return _complete(session, found, [step for step in steps if isinstance(step, StoredStep)])


def _complete(session: Session, found: AuditRecord, steps: Sequence[StoredStep]) -> AuditSummary:
    audit, now, tokens = found.summary, database_time(session), tokens_of(steps)
    compliance = score_audit(steps)
    columns = summary_columns(found, steps, compliance, now)
    update_audit_row(session, audit.audit_id, {**columns, "status": AuditStatus.COMPLETED})
    if not found.is_latest:
        promote(session, audit.audit_id)
    enqueue(session, events.completed(audit, compliance, tokens, found.duration_ms(now), now))
    message = (
        f"END: {compliance.niveau}, {compliance.score_percentage} %, "
        f"{compliance.failed_steps} step(s) not dealt with"
    )
    write_notes(session, audit_note(audit, message, data={"total_tokens": tokens}))
    _end_batch_item(session, audit.tracking_id, None)
    score = float(compliance.score_percentage)
    return replace(
        audit, status=AuditStatus.COMPLETED, niveau=compliance.niveau, score_percentage=score
    )


def _end_incomplete(
    session: Session,
    found: AuditRecord,
    coverage: TranscriptCoverage,
    steps: Sequence[StoredStep | MissingStep],
    reason: str,
) -> AuditSummary:
    now = database_time(session)
    audit = replace(found.summary, status=AuditStatus.INCOMPLETE, error=reason)
    columns = incomplete_columns(found, audit, steps, coverage, now)
    update_audit_row(session, audit.audit_id, columns)
    enqueue(session, [events.incomplete(audit, coverage, now)])
    tokens = {"total_tokens": tokens_of(steps)}
    write_notes(session, audit_note(audit, f"END: {reason}", level="error", data=tokens))
    _end_batch_item(session, audit.tracking_id, reason)
    return audit


def fail_audit(session: Session, tracking_id: str, error: str, stage: str) -> None:
    """Fail the audit in the caller's transaction. An ended audit stays; one that never started is only
    counted in its batch."""
    found = find_audit(session, tracking_id)
    if found is not None:
        audit, now = found.summary, database_time(session)
        if not lock_running_audit(session, audit.audit_id, None, now):
            return
        values = {
            "status": AuditStatus.FAILED,
            "error_message": error,
            "completed_at": now,
            "duration_ms": found.duration_ms(now),
        }
        update_audit_row(session, audit.audit_id, values)
        enqueue(session, [events.failed(audit, error, stage, now)])
        write_notes(session, audit_note(audit, f"END: failed at {stage}: {error}", level="error"))
    _end_batch_item(session, tracking_id, error)


def _end_batch_item(session: Session, tracking_id: str, error: str | None) -> None:
    """Count the audit in its batch, if it has one. Repeating this counts it once."""
    now = database_time(session)
    batch = end_item(session, tracking_id, error, now)
    if batch is not None:
        enqueue(session, events.batch_item_ended(batch, now))


def sweep_audits(silent_for_seconds: float, *, database: Database, claims: Claims) -> Sequence[str]:
    """End the audits that no worker has touched or claimed, and return their tracking ids."""
    with database.reading() as session:
        silent = stale_audits(session, silent_for_seconds, limit=SWEEP_LIMIT)
        refused = refusals(session, pending_items(session, limit=SWEEP_LIMIT))
    minutes, seconds = f"{silent_for_seconds / 60:.0f} minutes", f"{silent_for_seconds:.0f} seconds"
    duration = seconds if silent_for_seconds < 120 else minutes
    reason = f"Nobody has worked on this audit for {duration}"
    abandoned = [
        tracking_id
        for audit_id, tracking_id in silent
        if claims.holder(audit_key(audit_id)) is None
    ]
    for tracking_id in abandoned:
        with database.transaction() as session:
            fail_audit(session, tracking_id, reason, "sweep")
    for tracking_id, why in refused.items():
        with database.transaction() as session:
            _end_batch_item(session, tracking_id, why)
    return [*abandoned, *refused]
