"""What people ask about runs, at work and ended: how far each phase is, why fiches did not succeed, what was said."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import and_, func, or_, select
from sqlalchemy.orm import Session

from automation_pipeline.audits.tables import AuditRow, StepResultRow
from automation_pipeline.automation.domain.run import FicheStage, OutcomeStatus, Reason, Run, RunStatus
from automation_pipeline.automation.store.runs import as_run
from automation_pipeline.automation.tables import FicheResultRow, LogRow, NotificationRow, RunRow
from automation_pipeline.core.notes import LogLevel
from automation_pipeline.fiches.tables import FicheCache, RecordingRow
from automation_pipeline.storage.bulk import among

LOG_LEVELS = tuple(LogLevel)
CANCELLED_WORDS = "Cancelled by an operator"
# As the report of a run calls what has no reason.
UNKNOWN = "unknown"


@dataclass(frozen=True)
class WorkDue:
    """Fiches with recordings that a run has to transcribe, those of them that it can audit, and those transcribed."""

    fiches: int
    transcribed: int
    fiches_to_audit: int


def work_due(session: Session, run_id: int) -> WorkDue:
    """Fiches that failed before their transcripts were due do not count, and untranscribed ones cannot be audited."""
    fiche = FicheResultRow
    failed_in_work = fiche.reason.in_(
        (Reason.TRANSCRIPTION_INCOMPLETE, Reason.NO_AUDIT_CONFIG, Reason.AUDIT_FAILED, Reason.AUDIT_INCOMPLETE)
    )
    at_work = or_(
        and_(fiche.status == OutcomeStatus.PENDING, fiche.stage == FicheStage.FETCHED),
        fiche.status == OutcomeStatus.SUCCESSFUL,
        failed_in_work,
    )
    heard = func.coalesce(fiche.reason, "") != Reason.TRANSCRIPTION_INCOMPLETE
    counts = (func.count(), func.count().filter(fiche.transcribed), func.count().filter(heard))
    with_recordings = (fiche.run_id == run_id, fiche.recordings_count > 0, at_work)
    return WorkDue(*session.execute(select(*counts).where(*with_recordings)).tuples().one())


@dataclass(frozen=True)
class Progress:
    """Fiches of a run by how far they have come. `to_work` have recordings and their details, and are past the filters.
    `audited` fiches have an audit that ended."""

    selected: int
    fetched: int
    to_work: int
    transcribed: int
    audited: int
    ended: int
    audits: int


def progress_of(session: Session, run_id: int) -> Progress:
    """One query over the ledger."""
    fiche = FicheResultRow
    ended = fiche.status != OutcomeStatus.PENDING
    fetched = or_(fiche.stage == FicheStage.FETCHED, fiche.status == OutcomeStatus.SUCCESSFUL)
    to_work = and_(fetched, fiche.recordings_count > 0)
    counts = (
        func.count(),
        func.count().filter(or_(ended, fiche.stage == FicheStage.FETCHED)),
        func.count().filter(to_work),
        func.count().filter(and_(to_work, fiche.transcribed)),
        func.count().filter(and_(to_work, ended, fiche.audits > 0)),
        func.count().filter(ended),
        func.coalesce(func.sum(fiche.audits), 0),
    )
    return Progress(*session.execute(select(*counts).where(fiche.run_id == run_id)).tuples().one())


def ledger_progress(session: Session, run_id: int) -> int:
    """A number that grows with all that attempts at the run have stored: fiches fetched, transcribed, audited and
    ended, transcripts, and judged audit steps."""
    fiche = FicheResultRow
    fetched = fiche.stage == FicheStage.FETCHED
    counts = (
        func.count(),
        func.count().filter(or_(fetched, fiche.status != OutcomeStatus.PENDING)),
        func.count().filter(fiche.transcribed),
        func.count().filter(fiche.status != OutcomeStatus.PENDING),
        func.coalesce(func.sum(fiche.audits), 0),
    )
    in_ledger = session.execute(select(*counts).where(fiche.run_id == run_id)).tuples().one()
    transcripts = (
        select(func.count())
        .select_from(fiche)
        .join(FicheCache, FicheCache.fiche_id == fiche.fiche_id)
        .join(RecordingRow, RecordingRow.fiche_cache_id == FicheCache.id)
        .where(fiche.run_id == run_id, RecordingRow.has_transcription)
    )
    steps = (
        select(func.count())
        .select_from(StepResultRow)
        .join(AuditRow, AuditRow.id == StepResultRow.audit_id)
        .where(AuditRow.automation_run_id == run_id)
    )
    return sum(in_ledger) + (session.scalar(transcripts) or 0) + (session.scalar(steps) or 0)


def reasons_of(session: Session, run_id: int) -> Mapping[str, Mapping[str, int]]:
    """How many failed and were ignored for which reason, by outcome and stable key; the most frequent first."""
    fiche, count = FicheResultRow, func.count()
    reason = func.coalesce(fiche.reason, UNKNOWN)
    query = (
        select(fiche.status, reason, count)
        .where(fiche.run_id == run_id, fiche.status.in_((OutcomeStatus.FAILED, OutcomeStatus.IGNORED)))
        .group_by(fiche.status, reason)
        .order_by(fiche.status, count.desc(), reason)
    )
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for status, why, fiches in session.execute(query).tuples():
        found[status][why] = fiches
    return dict(found)


def failed_fiches(session: Session, run_id: int) -> list[str]:
    """Fiches that a retry takes up: they failed, or the run was cancelled before they ended. In selection order."""
    fiche = FicheResultRow
    unfinished = or_(fiche.status == OutcomeStatus.FAILED, fiche.reason == Reason.CANCELLED)
    return list(
        session.scalars(select(fiche.fiche_id).where(fiche.run_id == run_id, unfinished).order_by(fiche.position))
    )


def runs_like(
    session: Session,
    *,
    schedule_id: int | None = None,
    statuses: Sequence[RunStatus] = (),
    limit: int,
    offset: int,
) -> list[Run]:
    """Newest first; no status means any."""
    query = select(RunRow).order_by(RunRow.id.desc()).limit(limit).offset(offset)
    if schedule_id is not None:
        query = query.where(RunRow.schedule_id == schedule_id)
    if statuses:
        query = query.where(RunRow.status.in_(statuses))
    return [as_run(row) for row in session.scalars(query)]


def runs_by_id(session: Session, run_ids: Collection[int]) -> dict[int, Run]:
    """Those of them that exist."""
    rows = session.scalars(select(RunRow).where(among(session, RunRow.id, run_ids)))
    return {row.id: as_run(row) for row in rows}


def logs_after(
    session: Session, run_id: int, after_id: int, least: str, *, limit: int | None = None, offset: int = 0
) -> Sequence[LogRow]:
    """What was written down after that row and is at least so urgent, oldest first."""
    levels = LOG_LEVELS[LOG_LEVELS.index(LogLevel(least)) :]
    wanted = (LogRow.run_id == run_id, LogRow.id > after_id, LogRow.level.in_(levels))
    return session.scalars(select(LogRow).where(*wanted).order_by(LogRow.id).limit(limit).offset(offset)).all()


def notifications_of(session: Session, run_id: int) -> Sequence[NotificationRow]:
    query = select(NotificationRow).where(NotificationRow.run_id == run_id).order_by(NotificationRow.id)
    return session.scalars(query).all()


def runs_cancelled(session: Session, since: datetime, until: datetime) -> list[int]:
    """Runs that an operator ended in that time."""
    cancelled = (RunRow.status == RunStatus.CANCELLED, RunRow.completed_at.between(since, until))
    return list(session.scalars(select(RunRow.id).where(*cancelled).order_by(RunRow.id)))
