"""Audits: an audit judges the calls of a fiche by the steps of a configuration, and grades them."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from functools import partial
from typing import TypeAlias

from automation_pipeline.audits import events
from automation_pipeline.audits.configs import automatic_configs, get_config, known_ids
from automation_pipeline.audits.days import (
    DayAudits,
    audits_of_day,
    missing_audits,
    without_fiche_id,
)
from automation_pipeline.audits.judging import Judge, audit_key, begin_analysis, judge_steps
from automation_pipeline.audits.models.audits import (
    AuditRecord,
    AuditStatus,
    AuditSummary,
    FicheAuditRequest,
    MissingStep,
    StoredStep,
    TranscriptCoverage,
    TranscriptSnapshot,
)
from automation_pipeline.audits.models.configs import AuditConfig, config_not_found
from automation_pipeline.audits.queries.audits import (
    audits_by_id,
    audits_by_tracking_id,
    claim_audits,
    get_audit,
    lock_running_audits,
    promote,
    stale_audits,
    start_audits,
    update_audit_row,
    update_audit_rows,
)
from automation_pipeline.audits.queries.steps import all_steps
from automation_pipeline.audits.queries.transcripts import (
    get_transcript_snapshot,
    last_transcription_error,
    transcript_snapshots,
)
from automation_pipeline.audits.requests import end_item, end_items, pending_items
from automation_pipeline.audits.rules.verdicts import (
    incomplete_columns,
    nothing_to_judge,
    score_audit,
    steps_sentence,
    summary_columns,
    tokens_of,
    transcripts_missing,
)
from automation_pipeline.core.background import process_concurrently
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.coordination import Claims
from automation_pipeline.core.errors import (
    AutomationError,
    InfrastructureError,
    NotFoundError,
    TransientError,
    sentence_of,
)
from automation_pipeline.fiches.mirror import fetch_fiche
from automation_pipeline.fiches.models.fiches import FicheNotFound, FicheSource
from automation_pipeline.fiches.queries.mirror import known_since
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.group_commit import once_per_group
from automation_pipeline.storage.history import write_notes
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.run_requests import refusals
from automation_pipeline.storage.statements import database_time

# Details younger than this are not fetched again.
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
    """Audit the fiche and return the ended audit. `ensure_transcribed` transcribes a fiche's
    recordings.

    Repeated after a crash or for an incomplete audit, it judges the missing steps. Two workers on
    one audit wait for each other. Raises NotFoundError for an unknown configuration."""
    found = await _open_audit(request, database, source, clock)
    if found.summary.is_final:
        return found.summary
    audit_id, options = found.summary.audit_id, judge.options
    async with judge.claims.hold(
        audit_key(audit_id), judge.semaphore.owner, options.lease_seconds
    ) as claim:
        found, snapshot = await database.write_in_bulk(_claim, (audit_id, claim.token))
        if found.summary.is_final:
            return found.summary
        cause = None
        if not snapshot.coverage.is_whole:
            snapshot, cause = await _complete_transcripts(found, ensure_transcribed, database)
        return await _judge(found, snapshot, claim.token, cause, database, judge)


async def _open_audit(
    request: FicheAuditRequest, database: Database, source: FicheSource, clock: Clock
) -> AuditRecord:
    """Return the request's audit, and start it if it is new. An audit of a fiche that the CRM does not know
    fails."""
    now = clock.now()
    existing = await database.write_in_bulk(_start_if_fresh, (request, now))
    if existing is not None:
        return existing
    outcome = await fetch_fiche(
        request.fiche_id, since=now - FRESH_FOR, database=database, source=source, clock=clock
    )
    is_known = not isinstance(outcome, FicheNotFound)
    return await database.write_in_bulk(_start, (request, is_known))


def _start_if_fresh(
    session: Session, wanted: Sequence[tuple[FicheAuditRequest, datetime]]
) -> list[AuditRecord | AutomationError | None]:
    """Start the audits, or return the existing ones. None if the fiche must be fetched first."""
    found = audits_by_tracking_id(session, [request.tracking_id for request, _ in wanted])
    results: dict[str, AuditRecord | AutomationError] = dict(found)
    new = [request for request, _ in wanted if request.tracking_id not in found]
    if new:
        now = max(now for _, now in wanted)
        outcomes = known_since(session, [each.fiche_id for each in new], now - FRESH_FOR, now)
        known = {each.fiche_id: not isinstance(each, FicheNotFound) for each in outcomes}
        fresh = [(each, known[each.fiche_id]) for each in new if each.fiche_id in known]
        started = _start(session, fresh)
        results |= dict(zip([each.tracking_id for each, _ in fresh], started, strict=True))
    unconfirmed = [each for each in new if each.tracking_id not in results]
    if unconfirmed:  # an unknown configuration is an error before the call to the CRM
        configs = known_ids(session, {each.audit_config_id for each in unconfirmed})
        results |= {
            each.tracking_id: config_not_found(each.audit_config_id)
            for each in unconfirmed
            if each.audit_config_id not in configs
        }
    return [results.get(request.tracking_id) for request, _ in wanted]


def _start(
    session: Session, requests: Sequence[tuple[FicheAuditRequest, bool]]
) -> list[AuditRecord | AutomationError]:
    """Start the audits. False says that the CRM does not know the fiche: the audit fails at once."""
    now, errors = database_time(session), dict[str, AutomationError]()
    wanted: list[tuple[FicheAuditRequest, AuditConfig]] = []
    for request, _ in requests:
        config_id = request.audit_config_id
        try:
            stored = once_per_group(
                session, (get_config, config_id), partial(get_config, config_id=config_id)
            )
            wanted.append((request, stored.config))
        except NotFoundError as error:
            errors[request.tracking_id] = error
    started = start_audits(session, wanted, now) if wanted else {}
    for request, config in wanted:
        found = started.get(request.tracking_id)
        if found is None:
            errors[request.tracking_id] = NotFoundError(f"Fiche {request.fiche_id} not found")
            continue
        enqueue(session, events.started(found.summary, config, now))
        message = (
            f"START: {config.name}, {len(config.steps)} steps, "
            f"asked for by {request.trigger_source or 'an unknown requester'}"
        )
        write_notes(session, events.audit_note(found.summary, message))
    for request, is_known in requests:
        key = request.tracking_id
        if not is_known and key in started:
            fail_audit(session, key, f"Fiche {request.fiche_id} not found (404)", "fiche_not_found")
            started[key] = get_audit(session, started[key].summary.audit_id)
    return [errors.get(each.tracking_id) or started[each.tracking_id] for each, _ in requests]


def _claim(
    session: Session, claims: Sequence[tuple[int, int]]
) -> list[tuple[AuditRecord, TranscriptSnapshot] | AutomationError]:
    """Claim the audits under the tokens, and read the present transcripts."""
    audits = claim_audits(session, dict(claims))
    snapshots = transcript_snapshots(session, {found.summary.fiche_id for found in audits.values()})
    results: list[tuple[AuditRecord, TranscriptSnapshot] | AutomationError] = []
    for audit_id, token in claims:
        found = audits[audit_id]
        if found.fence == token or found.summary.is_final:
            results.append((found, snapshots[found.summary.fiche_id]))
        else:
            results.append(TransientError(f"Another worker has claimed audit {audit_id}."))
    return results


async def _complete_transcripts(
    found: AuditRecord, ensure_transcribed: EnsureTranscribed, database: Database
) -> tuple[TranscriptSnapshot, str | None]:
    """Return the transcripts, and why some are missing. Raises InfrastructureError."""
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
    """Judge the audit if every recording that it needs has a transcript; else end it as incomplete."""
    audit, coverage = found.summary, snapshot.coverage
    ending = _AuditEnd(audit.audit_id, token, coverage)
    if not coverage.is_whole:
        reason = transcripts_missing(audit.fiche_id, coverage, cause)
        return await database.write_in_bulk(_settle, replace(ending, reason=reason))
    if not snapshot.timeline.recordings:
        with database.transaction() as session:
            reason = nothing_to_judge(audit.fiche_id, coverage)
            fail_audit(session, audit.tracking_id, reason, "missing_transcription")
            return get_audit(session, audit.audit_id).summary
    found = await begin_analysis(found, snapshot, database=database, judge=judge)
    await judge_steps(found, snapshot, token, database=database, judge=judge)
    return await database.write_in_bulk(_settle, ending)


@dataclass(frozen=True)
class _AuditEnd:
    """An audit that the token's holder ends. With a reason, it ends as incomplete."""

    audit_id: int
    token: int
    coverage: TranscriptCoverage
    reason: str | None = None


def _settle(session: Session, endings: Sequence[_AuditEnd]) -> list[AuditSummary]:
    """Complete the audits, or end them as incomplete, for their reasons or because a step is
    missing. An ended audit and an audit of another worker stay unchanged."""
    now, changes = database_time(session), dict[int, Mapping[str, object]]()
    tokens = {each.audit_id: each.token for each in endings}
    held = lock_running_audits(session, tokens, now, tokens=tokens)
    audits = audits_by_id(session, list(tokens))
    summaries = {audit_id: found.summary for audit_id, found in audits.items()}
    steps = all_steps(session, sorted(held))
    for each in endings:
        if each.audit_id not in held:
            continue
        found, of_audit, reason = audits[each.audit_id], steps[each.audit_id], each.reason
        missing = [step for step in of_audit if isinstance(step, MissingStep)]
        if missing and reason is None:
            judged = steps_sentence(len(of_audit) - len(missing), found.summary.steps)
            reason = f"Audit incomplete: {judged}: {missing[0].error}"
        ended = (
            _complete(session, found, [step for step in of_audit if isinstance(step, StoredStep)])
            if reason is None
            else _end_incomplete(session, found, each.coverage, of_audit, reason)
        )
        summaries[each.audit_id], changes[each.audit_id] = ended
    update_audit_rows(session, changes)
    for audit_id in held:
        if summaries[audit_id].status is AuditStatus.COMPLETED and not audits[audit_id].is_latest:
            promote(session, audit_id)
    end_items(session, [summaries[audit_id] for audit_id in sorted(held)])
    return [summaries[each.audit_id] for each in endings]


def _complete(
    session: Session, found: AuditRecord, steps: Sequence[StoredStep]
) -> tuple[AuditSummary, Mapping[str, object]]:
    """Return the completed audit, and the columns to write."""
    audit, now, tokens = found.summary, database_time(session), tokens_of(steps)
    compliance = score_audit(steps)
    columns = summary_columns(found, steps, compliance, now)
    enqueue(session, events.completed(audit, compliance, tokens, found.duration_ms(now), now))
    message = (
        f"END: {compliance.niveau}, {compliance.score_percentage} %, "
        f"{compliance.failed_steps} step(s) not dealt with"
    )
    write_notes(session, events.audit_note(audit, message, data={"total_tokens": tokens}))
    completed = replace(
        audit,
        status=AuditStatus.COMPLETED,
        niveau=compliance.niveau,
        score_percentage=float(compliance.score_percentage),
    )
    return completed, {**columns, "status": AuditStatus.COMPLETED}


def _end_incomplete(
    session: Session,
    found: AuditRecord,
    coverage: TranscriptCoverage,
    steps: Sequence[StoredStep | MissingStep],
    reason: str,
) -> tuple[AuditSummary, Mapping[str, object]]:
    now = database_time(session)
    audit = replace(found.summary, status=AuditStatus.INCOMPLETE, error=reason)
    columns = incomplete_columns(found, audit, steps, coverage, now)
    enqueue(session, [events.incomplete(audit, coverage, now)])
    write_notes(
        session,
        events.audit_note(
            audit, f"END: {reason}", level="error", data={"total_tokens": tokens_of(steps)}
        ),
    )
    return audit, columns


def fail_audit(session: Session, tracking_id: str, error: str, stage: str) -> None:
    """Fail the audit in the caller's transaction. An audit that has ended stays unchanged. One that never
    started is only counted in its batch."""
    found = audits_by_tracking_id(session, [tracking_id]).get(tracking_id)
    if found is not None:
        audit, now = found.summary, database_time(session)
        if not lock_running_audits(session, [audit.audit_id], now):
            return
        update_audit_row(
            session,
            audit.audit_id,
            {
                "status": AuditStatus.FAILED,
                "error_message": error,
                "completed_at": now,
                "duration_ms": found.duration_ms(now),
            },
        )
        enqueue(session, [events.failed(audit, error, stage, now)])
        write_notes(
            session, events.audit_note(audit, f"END: failed at {stage}: {error}", level="error")
        )
    end_item(session, tracking_id, error)


def sweep_audits(silent_for_seconds: float, *, database: Database, claims: Claims) -> Sequence[str]:
    """End the audits that no worker has touched or claimed, and the batch items whose request was refused.
    Returns their tracking ids."""
    with database.reading() as session:
        silent = stale_audits(session, silent_for_seconds, limit=SWEEP_LIMIT)
        refused = refusals(session, pending_items(session, limit=SWEEP_LIMIT))
    minutes, seconds = f"{silent_for_seconds / 60:.0f} minutes", f"{silent_for_seconds:.0f} seconds"
    duration = seconds if silent_for_seconds < 120 else minutes
    reason = f"No worker has worked on this audit for {duration}"
    abandoned = fail_unclaimed(silent, reason, database=database, claims=claims)
    for tracking_id, why in refused.items():
        with database.transaction() as session:
            end_item(session, tracking_id, why)
    return [*abandoned, *refused]


def fail_unclaimed(
    audits: Sequence[tuple[int, str]], reason: str, *, database: Database, claims: Claims
) -> list[str]:
    """Fail those of the audits (id, tracking id) that no worker has claimed. Returns their tracking ids."""
    unclaimed = [key for audit_id, key in audits if claims.holder(audit_key(audit_id)) is None]
    for tracking_id in unclaimed:
        with database.transaction() as session:
            fail_audit(session, tracking_id, reason, "sweep")
    return unclaimed


TRIGGER = "asset"


@dataclass(frozen=True, kw_only=True)
class DayAuditRequest:
    """Audit a day with `width` concurrent audits. Repeating an `attempt` continues its audits; another
    attempt retries what failed."""

    day: date
    attempt: str
    width: int
    dagster_run_id: str | None = None


async def audit_day(
    work: DayAuditRequest,
    *,
    database: Database,
    source: FicheSource,
    ensure_transcribed: EnsureTranscribed,
    judge: Judge,
    clock: Clock,
) -> DayAudits:
    """Audit the day and return its counts, with the causes of this attempt's failures.

    The error of one audit does not affect the others. If every audit fails, the first error is
    raised.
    """
    ended: list[tuple[str, AutomationError | None]] = []

    async def audit(request: FicheAuditRequest) -> tuple[str, AutomationError | None]:
        try:
            await audit_fiche(
                request,
                database=database,
                source=source,
                ensure_transcribed=ensure_transcribed,
                judge=judge,
                clock=clock,
            )
        except AutomationError as error:
            return request.fiche_id, error
        return request.fiche_id, None

    with database.reading() as session:
        config_ids = [stored.id for stored in automatic_configs(session)]
        missing = missing_audits(session, work.day, config_ids)
    requests = [
        FicheAuditRequest(
            tracking_id=f"day-{work.day.isoformat()}-audit-{fiche_id}-{config_id}-{work.attempt}",
            fiche_id=fiche_id,
            audit_config_id=config_id,
            trigger_source=TRIGGER,
            dagster_run_id=work.dagster_run_id,
        )
        for fiche_id, config_id in missing
    ]
    await process_concurrently(requests, audit, ended.extend, width=work.width)
    failed = [(fiche_id, error) for fiche_id, error in ended if error is not None]
    if failed and len(failed) == len(ended):
        raise failed[0][1]
    with database.reading() as session:
        day = audits_of_day(session, work.day)
    causes = Counter(without_fiche_id(sentence_of(error), fiche_id) for fiche_id, error in failed)
    return replace(day, failures=Counter(day.failures) + causes)
