"""Queries over the ledger: one row a fiche of a run."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, and_, bindparam, func, select, update
from sqlalchemy.orm import Session

from automation_pipeline.automation.domain.outcomes import LedgerMove
from automation_pipeline.automation.domain.run import FicheOutcome, OutcomeStatus, Tally
from automation_pipeline.automation.tables import FicheResultRow
from automation_pipeline.storage.bulk import upsert

_KEY = ("run_id", "fiche_id")
_MOVED = ("status", "error", "ignore_reason", "recordings_count")


def open_ledger(session: Session, run_id: int, fiche_ids: Sequence[str], batch_size: int, now: datetime) -> None:
    """One pending row a fiche; a fiche that is there already stays as it is."""
    rows = [
        {
            "run_id": run_id,
            "fiche_id": fiche_id,
            "position": position,
            "batch": position // batch_size,
            "status": OutcomeStatus.PENDING,
            "created_at": now,
            "updated_at": now,
        }
        for position, fiche_id in enumerate(fiche_ids)
    ]
    upsert(session, FicheResultRow, rows, key=_KEY)


def pending_batches(session: Session, run_id: int) -> list[int]:
    """Numbers of the batches that have something left to do."""
    query = select(FicheResultRow.batch).where(_pending(run_id)).distinct().order_by(FicheResultRow.batch)
    return list(session.scalars(query))


def pending_fiches(session: Session, run_id: int, batch: int) -> list[str]:
    query = select(FicheResultRow.fiche_id).where(_pending(run_id), FicheResultRow.batch == batch)
    return list(session.scalars(query.order_by(FicheResultRow.position)))


def record_moves(session: Session, run_id: int, moves: Sequence[LedgerMove], now: datetime) -> None:
    """A row that has ended does not move again."""
    if not moves:
        return
    change = (
        update(FicheResultRow)
        .where(_pending(run_id), FicheResultRow.fiche_id == bindparam("moved"))
        .values(updated_at=now)
    )
    changes = [{"moved": move.fiche_id, **{field: getattr(move, field) for field in _MOVED}} for move in moves]
    session.connection().execute(change, changes)


def fail_pending(session: Session, run_id: int, error: str, now: datetime) -> None:
    session.execute(
        update(FicheResultRow)
        .where(_pending(run_id))
        .values(status=OutcomeStatus.FAILED, error=error, updated_at=now)
        .execution_options(synchronize_session=False)
    )


def tally(session: Session, run_id: int, selected: int) -> Tally:
    counts = dict(
        session.execute(
            select(FicheResultRow.status, func.count())
            .where(FicheResultRow.run_id == run_id)
            .group_by(FicheResultRow.status)
        )
        .tuples()
        .all()
    )
    return Tally(selected=selected, **counts)


def outcomes(session: Session, run_id: int) -> list[FicheOutcome]:
    """In the order of selection."""
    query = select(FicheResultRow).where(FicheResultRow.run_id == run_id).order_by(FicheResultRow.position)
    return [
        FicheOutcome(
            fiche_id=row.fiche_id,
            status=OutcomeStatus(row.status),
            error=row.error,
            ignore_reason=row.ignore_reason,
            recordings_count=row.recordings_count,
        )
        for row in session.scalars(query)
    ]


def _pending(run_id: int) -> ColumnElement[bool]:
    return and_(FicheResultRow.run_id == run_id, FicheResultRow.status == OutcomeStatus.PENDING)
