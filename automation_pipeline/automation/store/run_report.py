"""What the report of a run tells, in a constant number of queries; see `run_verdicts` for its audits."""

from datetime import date

from sqlalchemy import case, func, select
from sqlalchemy.orm import Session

from automation_pipeline.automation.domain.run import OutcomeStatus
from automation_pipeline.automation.domain.run_report import ReportedFiche, RunReport, phase_spans
from automation_pipeline.automation.store.ledger import tally
from automation_pipeline.automation.store.run_verdicts import count_audits, reported_audits
from automation_pipeline.automation.store.runs import as_run
from automation_pipeline.automation.tables import FicheResultRow, RunRow, ScheduleRow
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.fiches.tables import FicheCache

MOST_FICHES = 2000
MOST_IN_FULL = 300
_WORST_FIRST = case(
    (FicheResultRow.status == OutcomeStatus.FAILED, 0),
    (FicheResultRow.status == OutcomeStatus.PENDING, 1),
    (FicheResultRow.status == OutcomeStatus.IGNORED, 2),
    else_=3,
)


def run_report(
    session: Session, run_id: int, *, most_fiches: int = MOST_FICHES, most_in_full: int = MOST_IN_FULL
) -> RunReport:
    """The failed fiches first. The audits of those told, the worst `most_in_full` with their steps."""
    query = select(RunRow, ScheduleRow.name).join(ScheduleRow, ScheduleRow.id == RunRow.schedule_id)
    found = session.execute(query.where(RunRow.id == run_id)).tuples().one_or_none()
    if found is None:
        raise NotFoundError(f"Run {run_id} not found")
    row, schedule_name = found
    fiches = _fiches(session, run_id, most_fiches)
    return RunReport(
        run=as_run(row),
        schedule_name=schedule_name,
        phases=phase_spans(row.began_at or row.started_at, row.selected_at, row.fetched_at, row.completed_at),
        tally=tally(session, run_id, row.selected_fiches),
        causes=_causes(session, run_id),
        fiches=fiches,
        audits=reported_audits(session, run_id, [fiche.fiche_id for fiche in fiches], most_in_full),
        audit_count=count_audits(session, run_id),
    )


def days_touched(session: Session, run_id: int) -> list[date]:
    """The days on which the run's fiches were sold, as far as that is known."""
    query = (
        select(FicheCache.sales_date)
        .join(FicheResultRow, FicheResultRow.fiche_id == FicheCache.fiche_id)
        .where(FicheResultRow.run_id == run_id, FicheCache.sales_date.is_not(None))
        .distinct()
        .order_by(FicheCache.sales_date)
    )
    return [date.fromisoformat(day) for day in session.scalars(query) if day is not None]


def _fiches(session: Session, run_id: int, most: int) -> tuple[ReportedFiche, ...]:
    query = (
        select(FicheResultRow, FicheCache.groupe)
        .outerjoin(FicheCache, FicheCache.fiche_id == FicheResultRow.fiche_id)
        .where(FicheResultRow.run_id == run_id)
        .order_by(_WORST_FIRST, FicheResultRow.position)
        .limit(most)
    )
    return tuple(
        ReportedFiche(
            fiche_id=row.fiche_id,
            groupe=groupe,
            status=OutcomeStatus(row.status),
            reason=row.reason,
            why=row.error or row.ignore_reason,
            recordings=row.recordings_count,
        )
        for row, groupe in session.execute(query).tuples()
    )


def _causes(session: Session, run_id: int) -> dict[tuple[OutcomeStatus, str], int]:
    """The most frequent first."""
    named, times = func.coalesce(FicheResultRow.reason, "unknown"), func.count()
    query = (
        select(FicheResultRow.status, named, times)
        .where(
            FicheResultRow.run_id == run_id, FicheResultRow.status.in_([OutcomeStatus.FAILED, OutcomeStatus.IGNORED])
        )
        .group_by(FicheResultRow.status, FicheResultRow.reason)
        .order_by(times.desc(), FicheResultRow.status, FicheResultRow.reason)
    )
    return {(OutcomeStatus(status), cause): count for status, cause, count in session.execute(query).tuples()}
