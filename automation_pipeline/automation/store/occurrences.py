"""Queries over occurrences: what became of each due time of a schedule."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from automation_pipeline.automation.tables import OccurrenceRow, RunRow


@dataclass(frozen=True, kw_only=True)
class Occurrence:
    """Either a run, which may have been deleted since, or why there was none."""

    due_at: datetime
    run_id: int | None
    run_status: str | None
    not_run_because: str | None
    decided_at: datetime


def occurrences_of(session: Session, schedule_id: int, limit: int) -> list[Occurrence]:
    """The last due times that were decided upon, newest first."""
    query = (
        select(OccurrenceRow, RunRow.status)
        .outerjoin(RunRow, RunRow.id == OccurrenceRow.run_id)
        .where(OccurrenceRow.schedule_id == schedule_id)
        .order_by(OccurrenceRow.due_at.desc())
        .limit(limit)
    )
    return [_occurrence(row, status) for row, status in session.execute(query).tuples()]


def _occurrence(row: OccurrenceRow, status: str | None) -> Occurrence:
    return Occurrence(
        due_at=row.due_at,
        run_id=row.run_id,
        run_status=status,
        not_run_because=row.not_run_because,
        decided_at=row.decided_at,
    )
