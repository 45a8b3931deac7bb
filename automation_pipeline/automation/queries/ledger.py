"""Queries about the ledger: one row per fiche of a run."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import (
    ColumnElement,
    Integer,
    Select,
    and_,
    bindparam,
    func,
    or_,
    select,
    update,
)
from sqlalchemy.orm import Session

from automation_pipeline.automation.models.runs import (
    FicheOutcome,
    FicheStage,
    LedgerMove,
    LedgerTally,
    OutcomeStatus,
    Reason,
)
from automation_pipeline.automation.tables import FicheResultRow
from automation_pipeline.core.access import Reach
from automation_pipeline.fiches.queries.fiches import within
from automation_pipeline.fiches.tables import FicheCacheRow
from automation_pipeline.storage.statements import among, upsert

_KEY = ("run_id", "fiche_id")
_MOVED = ("status", "error", "ignore_reason", "reason", "stage")
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
    """Numbers of the batches with pending fiches."""
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


def failures(session: Session, run_id: int) -> int:
    failed = (FicheResultRow.run_id == run_id, FicheResultRow.status == OutcomeStatus.FAILED)
    return session.scalar(select(func.count()).where(*failed)) or 0


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
    """The number of the run's fiches that lack no transcript."""
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
    return [
        FicheOutcome(
            fiche_id=row.fiche_id,
            status=OutcomeStatus(row.status),
            error=row.error,
            ignore_reason=row.ignore_reason,
            recordings_count=row.recordings_count,
            reason=None if row.reason is None else Reason(row.reason),
        )
        for row in session.scalars(query)
    ]


def _pending(run_id: int) -> ColumnElement[bool]:
    return and_(FicheResultRow.run_id == run_id, FicheResultRow.status == OutcomeStatus.PENDING)
