"""The fiches of a run: their rows in the ledger, and what the mirror, transcripts and audits know about
them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import date, datetime

from sqlalchemy import (
    ColumnElement,
    Integer,
    Select,
    and_,
    bindparam,
    exists,
    func,
    or_,
    select,
    update,
)
from sqlalchemy.orm import Session, aliased

from automation_pipeline.audits.models.audits import AuditStatus
from automation_pipeline.audits.tables import AuditRow, StepResultRow
from automation_pipeline.automation.models.runs import (
    FicheFailure,
    FicheOutcome,
    FicheStage,
    LedgerMove,
    LedgerTally,
    OutcomeStatus,
    Reason,
    ReasonCount,
)
from automation_pipeline.automation.models.schedules import FicheCandidate
from automation_pipeline.automation.tables import FicheResultRow, RunRow
from automation_pipeline.core.access import Reach
from automation_pipeline.fiches.queries.mirror import within
from automation_pipeline.fiches.tables import CallRecordingRow, FicheCacheRow
from automation_pipeline.storage.statements import among, database_now, upsert
from automation_pipeline.transcription.models import TranscriptionStatus
from automation_pipeline.transcription.tables import TranscriptionRunRow, TranscriptionTaskRow

# Outcomes without a reason are counted under this one.
UNKNOWN_REASON = "unknown"
_KEY = ("run_id", "fiche_id")
# Fields of a move that replace the value of the column with the same name.
_MOVED = tuple(
    field.name
    for field in fields(LedgerMove)
    if field.name not in {"fiche_id", "recordings_count", "audits"}
)
# An ended row never changes again.
_MOVE = (
    update(FicheResultRow)
    .where(
        FicheResultRow.run_id == bindparam("of_run"),
        FicheResultRow.fiche_id == bindparam("moved"),
        FicheResultRow.status == OutcomeStatus.PENDING,
    )
    .values(
        updated_at=bindparam("at"),
        audits=FicheResultRow.audits + bindparam("more_audits"),
        recordings_count=func.coalesce(
            bindparam("recordings", type_=Integer()), FicheResultRow.recordings_count
        ),
        **{field: bindparam(f"new_{field}") for field in _MOVED},
    )
)


def open_ledger(
    session: Session, run_id: int, fiche_ids: Sequence[str], batch_size: int, now: datetime
) -> None:
    """Add one pending row per fiche; existing rows do not change."""
    rows = [
        {
            "run_id": run_id,
            "fiche_id": fiche_id,
            "position": position,
            "batch": position // batch_size,
            "status": OutcomeStatus.PENDING,
            "stage": FicheStage.SELECTED,
            "created_at": now,
            "updated_at": now,
        }
        for position, fiche_id in enumerate(fiche_ids)
    ]
    upsert(session, FicheResultRow, rows, key=_KEY)


def pending_batches(session: Session, run_id: int) -> list[int]:
    query = (
        select(FicheResultRow.batch)
        .where(_pending(run_id))
        .distinct()
        .order_by(FicheResultRow.batch)
    )
    return list(session.scalars(query))


def pending_fiches(session: Session, run_id: int, batch: int, stage: FicheStage) -> list[str]:
    """The batch's pending fiches at exactly this stage, in the order of selection."""
    of_batch = (FicheResultRow.batch == batch, FicheResultRow.stage == stage)
    query = select(FicheResultRow.fiche_id).where(_pending(run_id), *of_batch)
    return list(session.scalars(query.order_by(FicheResultRow.position)))


def fiches_of_next_batch(session: Session, run_id: int, batch: int) -> list[str]:
    """The fetched fiches of the first batch after this one that has pending fiches."""
    later = [number for number in pending_batches(session, run_id) if number > batch]
    return pending_fiches(session, run_id, later[0], FicheStage.FETCHED) if later else []


def succeed_fetched(
    session: Session, run_id: int, now: datetime, *, without_recordings: bool
) -> int:
    """End fiches that need no more work as successful: all fetched fiches, or only those without
    recordings."""
    fetched = [_pending(run_id), FicheResultRow.stage == FicheStage.FETCHED]
    if without_recordings:
        fetched.append(func.coalesce(FicheResultRow.recordings_count, 0) == 0)
    ended = session.scalars(
        update(FicheResultRow)
        .where(*fetched)
        .values(status=OutcomeStatus.SUCCESSFUL, updated_at=now)
        .returning(FicheResultRow.id)
        .execution_options(synchronize_session=False)
    )
    return len(ended.all())


def mark_transcribed(
    session: Session, run_id: int, fiche_ids: Sequence[str], now: datetime
) -> None:
    chosen = among(session, FicheResultRow.fiche_id, fiche_ids)
    session.execute(
        update(FicheResultRow)
        .where(FicheResultRow.run_id == run_id, chosen)
        .values(transcribed=True, updated_at=now)
        .execution_options(synchronize_session=False)
    )


def is_transcription_due(session: Session, run_id: int) -> bool:
    """Whether a fiche of the run has its details and waits for transcripts."""
    waits = (_pending(run_id), FicheResultRow.stage == FicheStage.FETCHED)
    query = select(FicheResultRow.fiche_id).where(*waits, FicheResultRow.transcribed.is_(False))
    return session.scalar(query.limit(1)) is not None


def transcribed_fiches(session: Session, run_id: int) -> int:
    query = select(func.count()).where(FicheResultRow.run_id == run_id, FicheResultRow.transcribed)
    return session.scalar(query) or 0


def fetched(session: Session, run_id: int) -> int:
    """The number of fiches whose details are no longer outstanding."""
    ready = or_(
        FicheResultRow.status != OutcomeStatus.PENDING, FicheResultRow.stage == FicheStage.FETCHED
    )
    return session.scalar(select(func.count()).where(FicheResultRow.run_id == run_id, ready)) or 0


def ignored_by_reason(session: Session, run_id: int) -> dict[Reason, int]:
    query = select(FicheResultRow.reason, func.count()).where(
        FicheResultRow.run_id == run_id, FicheResultRow.status == OutcomeStatus.IGNORED
    )
    counts = session.execute(query.group_by(FicheResultRow.reason)).tuples()
    return {Reason(reason): count for reason, count in counts if reason}


def record_moves(session: Session, run_id: int, moves: Sequence[LedgerMove], now: datetime) -> None:
    changes = [
        {
            "of_run": run_id,
            "moved": move.fiche_id,
            "at": now,
            "more_audits": move.audits,
            "recordings": move.recordings_count,
            **{f"new_{field}": getattr(move, field) for field in _MOVED},
        }
        for move in moves
    ]
    if changes:
        session.connection().execute(_MOVE, changes)


def end_pending(
    session: Session, run_id: int, status: OutcomeStatus, error: str, reason: Reason, now: datetime
) -> None:
    """End the unfinished fiches of a run as failed or ignored, with the text in the column of that
    outcome."""
    column = (
        FicheResultRow.ignore_reason if status is OutcomeStatus.IGNORED else FicheResultRow.error
    )
    session.execute(
        update(FicheResultRow)
        .where(_pending(run_id))
        .values({"status": status, column.key: error, "reason": reason, "updated_at": now})
        .execution_options(synchronize_session=False)
    )


def tally(session: Session, run_id: int, selected: int) -> LedgerTally:
    counts = dict(
        session.execute(
            select(FicheResultRow.status, func.count())
            .where(FicheResultRow.run_id == run_id)
            .group_by(FicheResultRow.status)
        )
        .tuples()
        .all()
    )
    return LedgerTally(selected=selected, **counts)


def outcomes(session: Session, run_id: int) -> list[FicheOutcome]:
    """In the order of selection."""
    return _outcomes(session, _in_order(run_id))


def outcomes_within(
    session: Session,
    run_id: int,
    reach: Reach,
    *,
    status: OutcomeStatus | None,
    limit: int,
    offset: int,
) -> list[FicheOutcome]:
    """A page of outcomes, without fiches out of reach."""
    query = _in_order(run_id).limit(limit).offset(offset)
    if status is not None:
        query = query.where(FicheResultRow.status == status)
    if not reach.is_whole:
        query = query.join(FicheCacheRow, FicheCacheRow.fiche_id == FicheResultRow.fiche_id).where(
            within(session, reach)
        )
    return _outcomes(session, query)


def _in_order(run_id: int) -> Select[tuple[FicheResultRow]]:
    return (
        select(FicheResultRow)
        .where(FicheResultRow.run_id == run_id)
        .order_by(FicheResultRow.position)
    )


def _outcomes(session: Session, query: Select[tuple[FicheResultRow]]) -> list[FicheOutcome]:
    return [as_outcome(row) for row in session.scalars(query)]


def as_outcome(row: FicheResultRow) -> FicheOutcome:
    return FicheOutcome.model_validate(row, from_attributes=True)


def _pending(run_id: int) -> ColumnElement[bool]:
    return and_(FicheResultRow.run_id == run_id, FicheResultRow.status == OutcomeStatus.PENDING)


@dataclass(frozen=True)
class WorkDue:
    """Fiches with recordings that a run has to transcribe, how many of them are transcribed, and
    how many can be audited."""

    fiches: int
    transcribed: int
    fiches_to_audit: int


def work_due(session: Session, run_id: int) -> WorkDue:
    """Fiches that failed before transcription do not count, and untranscribed fiches cannot be
    audited."""
    fiche = FicheResultRow
    failed_in_work = fiche.reason.in_(
        (
            Reason.TRANSCRIPTION_INCOMPLETE,
            Reason.NO_AUDIT_CONFIG,
            Reason.AUDIT_FAILED,
            Reason.AUDIT_INCOMPLETE,
        )
    )
    at_work = or_(
        and_(fiche.status == OutcomeStatus.PENDING, fiche.stage == FicheStage.FETCHED),
        fiche.status == OutcomeStatus.SUCCESSFUL,
        failed_in_work,
    )
    received = func.coalesce(fiche.reason, "") != Reason.TRANSCRIPTION_INCOMPLETE
    counts = (func.count(), func.count().filter(fiche.transcribed), func.count().filter(received))
    with_recordings = (fiche.run_id == run_id, fiche.recordings_count > 0, at_work)
    return WorkDue(*session.execute(select(*counts).where(*with_recordings)).tuples().one())


def ledger_progress(session: Session, run_id: int) -> int:
    """A number that grows with everything that the run's attempts store: fetched, transcribed,
    audited and ended fiches, transcripts, and judged audit steps."""
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
        .join(FicheCacheRow, FicheCacheRow.fiche_id == fiche.fiche_id)
        .join(CallRecordingRow, CallRecordingRow.fiche_cache_id == FicheCacheRow.id)
        .where(fiche.run_id == run_id, CallRecordingRow.has_transcription)
    )
    steps = (
        select(func.count())
        .select_from(StepResultRow)
        .join(AuditRow, AuditRow.id == StepResultRow.audit_id)
        .where(AuditRow.automation_run_id == run_id)
    )
    return sum(in_ledger) + (session.scalar(transcripts) or 0) + (session.scalar(steps) or 0)


def fiches_to_retry(session: Session, run_id: int) -> list[str]:
    """Fiches that a retry processes, in selection order: they failed, or the run was cancelled
    before they ended."""
    fiche = FicheResultRow
    unfinished = or_(fiche.status == OutcomeStatus.FAILED, fiche.reason == Reason.CANCELLED)
    return list(
        session.scalars(
            select(fiche.fiche_id)
            .where(fiche.run_id == run_id, unfinished)
            .order_by(fiche.position)
        )
    )


# A run ignores these fiches after it has fetched their details.
FILTERED = (Reason.GROUPE_NOT_SELECTED, Reason.MISSING_GROUPE, Reason.TOO_MANY_RECORDINGS)


@dataclass(frozen=True)
class CoveredDay:
    """`is_whole`: the run selected all known fiches of the day. `is_reduced`: it neither transcribed
    nor audited some of them, because its filters exclude them or it stopped after the fetch."""

    is_whole: bool
    is_reduced: bool


def days_covered(session: Session, run_id: int) -> dict[date, CoveredDay]:
    """The known days of sale of the run's fiches."""
    in_run = and_(
        FicheResultRow.fiche_id == FicheCacheRow.fiche_id, FicheResultRow.run_id == run_id
    )
    touched = (
        select(FicheCacheRow.sales_date)
        .join(FicheResultRow, in_run)
        .where(FicheCacheRow.sales_date.is_not(None))
    )
    query = (
        select(
            FicheCacheRow.sales_date,
            func.count(),
            func.count(FicheResultRow.fiche_id),
            func.count().filter(FicheResultRow.reason.in_(FILTERED)),
        )
        .outerjoin(FicheResultRow, in_run)
        .where(FicheCacheRow.sales_date.in_(touched))
        .group_by(FicheCacheRow.sales_date)
        .order_by(FicheCacheRow.sales_date)
    )
    counted = session.execute(query).tuples()
    has_stopped = session.get_one(RunRow, run_id).stopped_after_fetch
    return {
        date.fromisoformat(day): CoveredDay(known == of_run, filtered > 0 or has_stopped)
        for day, known, of_run, filtered in counted
        if day is not None
    }


def failed_fiches(session: Session, run_id: int, limit: int) -> list[FicheFailure]:
    """The first failed fiches, in the order of the selection."""
    query = (
        select(
            FicheResultRow.fiche_id,
            func.coalesce(FicheResultRow.reason, UNKNOWN_REASON),
            func.coalesce(FicheResultRow.error, ""),
        )
        .where(FicheResultRow.run_id == run_id, FicheResultRow.status == OutcomeStatus.FAILED)
        .order_by(FicheResultRow.position)
        .limit(limit)
    )
    return [FicheFailure(*row) for row in session.execute(query).tuples()]


def reasons_of_run(session: Session, run_id: int) -> list[ReasonCount]:
    """Why fiches failed or were ignored, the most frequent reason first."""
    reason, times = func.coalesce(FicheResultRow.reason, UNKNOWN_REASON), func.count()
    query = (
        select(FicheResultRow.status, reason, times)
        .where(
            FicheResultRow.run_id == run_id,
            FicheResultRow.status.in_([OutcomeStatus.FAILED, OutcomeStatus.IGNORED]),
        )
        .group_by(FicheResultRow.status, reason)
        .order_by(times.desc(), FicheResultRow.status, reason)
    )
    return [
        ReasonCount(OutcomeStatus(status), reason, fiches)
        for status, reason, fiches in session.execute(query).tuples()
    ]


# An incomplete audit has no result: the next run completes it.
_AUDITED = exists().where(
    AuditRow.fiche_cache_id == FicheCacheRow.id,
    AuditRow.is_latest,
    AuditRow.status != AuditStatus.INCOMPLETE,
)


def fiches_of_days(session: Session, days: Sequence[date]) -> list[FicheCandidate]:
    """Fiches sold on the days, the oldest day first."""
    sold = among(session, FicheCacheRow.sales_date, [day.isoformat() for day in days])
    return _as_candidates(
        session, _mirrored().where(sold).order_by(FicheCacheRow.sales_date, FicheCacheRow.fiche_id)
    )


def fiches_named(session: Session, fiche_ids: Sequence[str]) -> list[FicheCandidate]:
    """In the given order; a fiche that is not mirrored has only its id."""
    found = _as_candidates(
        session, _mirrored().where(among(session, FicheCacheRow.fiche_id, fiche_ids))
    )
    known = {candidate.fiche_id: candidate for candidate in found}
    return [known.get(fiche_id, FicheCandidate(fiche_id)) for fiche_id in fiche_ids]


def _mirrored() -> Select[tuple[str, str | None, bool]]:
    return select(FicheCacheRow.fiche_id, FicheCacheRow.groupe, _AUDITED)


def _as_candidates(
    session: Session, query: Select[tuple[str, str | None, bool]]
) -> list[FicheCandidate]:
    return [FicheCandidate(*row) for row in session.execute(query).tuples()]


NOT_MIRRORED = "Fiche not found in cache"
SALES_LIST_ONLY = "Fiche details not fetched (still sales-list-only cache)"
DETAILS_INCOMPLETE = "Fiche details not fetched (cache incomplete)"


def groupes_of(session: Session, fiche_ids: Sequence[str]) -> Mapping[str, str | None]:
    query = select(FicheCacheRow.fiche_id, FicheCacheRow.groupe).where(
        among(session, FicheCacheRow.fiche_id, fiche_ids)
    )
    return dict(session.execute(query).tuples().all())


def why_without_details(session: Session, fiche_ids: Sequence[str]) -> Mapping[str, str]:
    query = select(FicheCacheRow.fiche_id, FicheCacheRow.raw_data).where(
        among(session, FicheCacheRow.fiche_id, fiche_ids)
    )
    raw = dict(session.execute(query).tuples().all())
    in_short = {fiche_id: bool(data.get("_salesListOnly")) for fiche_id, data in raw.items()}
    return {
        fiche_id: NOT_MIRRORED
        if fiche_id not in raw
        else SALES_LIST_ONLY
        if in_short[fiche_id]
        else DETAILS_INCOMPLETE
        for fiche_id in fiche_ids
    }


def untranscribed(
    session: Session, fiche_ids: Sequence[str], renew_before: datetime | None = None
) -> Mapping[str, int]:
    """The number of recordings per fiche without a transcript, or with one older than
    `renew_before`; the result contains every fiche. Without `renew_before`, the query only reads an
    index of untranscribed recordings."""
    missing = CallRecordingRow.has_transcription.is_(False)
    if renew_before is not None:
        at = CallRecordingRow.transcribed_at
        missing = or_(missing, at.is_(None), at < renew_before)
    lacks = CallRecordingRow.vanished_at.is_(None) & missing
    query = (
        select(FicheCacheRow.fiche_id, func.count(CallRecordingRow.fiche_cache_id))
        .outerjoin(CallRecordingRow, (CallRecordingRow.fiche_cache_id == FicheCacheRow.id) & lacks)
        .where(among(session, FicheCacheRow.fiche_id, fiche_ids))
        .group_by(FicheCacheRow.fiche_id)
    )
    return dict(session.execute(query).tuples().all())


def why_untranscribed(session: Session, fiche_ids: Sequence[str]) -> dict[str, str]:
    """The error of the last failed recording per fiche."""
    query = (
        select(TranscriptionTaskRow.fiche_id, TranscriptionTaskRow.error)
        .where(
            among(session, TranscriptionTaskRow.fiche_id, fiche_ids),
            TranscriptionTaskRow.error.is_not(None),
        )
        .order_by(TranscriptionTaskRow.id)
    )
    return {fiche_id: error for fiche_id, error in session.execute(query).tuples() if error}


def runs_over(session: Session, run_ids: Sequence[str]) -> Mapping[str, str | None]:
    """The ended transcription runs among these ids, with the error of each run that failed as a
    whole."""
    over = TranscriptionRunRow.status != TranscriptionStatus.RUNNING
    query = select(TranscriptionRunRow.id, TranscriptionRunRow.error)
    return dict(
        session.execute(query.where(among(session, TranscriptionRunRow.id, run_ids), over))
        .tuples()
        .all()
    )


def is_audit_stored(session: Session, tracking_id: str) -> bool:
    return (
        session.scalar(select(AuditRow.id).where(AuditRow.tracking_id == tracking_id)) is not None
    )


# A worker claims an audit at once after it has stored the row; this is more than it ever needs.
UNCLAIMED_SECONDS = 60.0


def audits_of_ended_runs(session: Session, *, limit: int) -> list[tuple[int, str]]:
    """Unfinished audits (id, tracking id) of runs that have ended, without those that a worker has just
    opened."""
    return list(
        session.execute(
            select(AuditRow.id, AuditRow.tracking_id)
            .join(RunRow, RunRow.id == AuditRow.automation_run_id)
            .where(
                AuditRow.status == AuditStatus.RUNNING,
                AuditRow.touched_at <= database_now(-UNCLAIMED_SECONDS),
                RunRow.completed_at.is_not(None),
            )
            .order_by(AuditRow.id)
            .limit(limit)
        ).tuples()
    )


@dataclass(frozen=True)
class AuditCounts:
    """The ended audits of a run, counting the newest per fiche and configuration. Audits without a
    grade count as failed."""

    completed: int
    failed: int

    @property
    def ended(self) -> int:
        return self.completed + self.failed


def audits_of_run(session: Session, run_id: int) -> AuditCounts:
    newer = aliased(AuditRow)
    audit_key = (AuditRow.automation_run_id, AuditRow.fiche_cache_id, AuditRow.audit_config_id)
    is_retried = exists().where(
        *(getattr(newer, column.key) == column for column in audit_key),
        newer.version > AuditRow.version,
    )
    query = select(AuditRow.status, func.count()).where(
        AuditRow.automation_run_id == run_id, ~is_retried
    )
    counts = dict(session.execute(query.group_by(AuditRow.status)).tuples().all())
    completed = counts.get(AuditStatus.COMPLETED, 0)
    failed = counts.get(AuditStatus.FAILED, 0) + counts.get(AuditStatus.INCOMPLETE, 0)
    return AuditCounts(completed, failed)
