"""What the report of a run tells, in a constant number of queries; see `run_verdicts` for its audits."""

from collections.abc import Mapping
from datetime import date

from sqlalchemy import and_, case, func, select
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


def days_covered(session: Session, run_id: int) -> dict[date, bool]:
    """The days on which the run's fiches were sold, as far as that is known, and whether the run had all known fiches
    of the day."""
    in_run = and_(FicheResultRow.fiche_id == FicheCache.fiche_id, FicheResultRow.run_id == run_id)
    touched = select(FicheCache.sales_date).join(FicheResultRow, in_run).where(FicheCache.sales_date.is_not(None))
    query = (
        select(FicheCache.sales_date, func.count(), func.count(FicheResultRow.fiche_id))
        .outerjoin(FicheResultRow, in_run)
        .where(FicheCache.sales_date.in_(touched))
        .group_by(FicheCache.sales_date)
        .order_by(FicheCache.sales_date)
    )
    counted = session.execute(query).tuples()
    return {date.fromisoformat(day): known == of_run for day, known, of_run in counted if day is not None}


def failed_fiches(session: Session, run_id: int, limit: int) -> list[tuple[str, str, str]]:
    """Id, reason and error of the first failed fiches, in the order of the selection."""
    query = (
        select(FicheResultRow.fiche_id, FicheResultRow.reason, FicheResultRow.error)
        .where(FicheResultRow.run_id == run_id, FicheResultRow.status == OutcomeStatus.FAILED)
        .order_by(FicheResultRow.position)
        .limit(limit)
    )
    return [(fiche_id, reason or "unknown", error or "") for fiche_id, reason, error in session.execute(query).tuples()]


def reasons_of_run(session: Session, run_id: int) -> Mapping[tuple[OutcomeStatus, str], int]:
    """How many fiches failed or were ignored for which reason, the most frequent first."""
    return _causes(session, run_id)


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
