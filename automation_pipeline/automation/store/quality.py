"""What the report of a day is made of. A constant number of queries, however long the day."""

from datetime import date
from typing import Any, TypeVar

from sqlalchemy import Select, and_, exists, func, select
from sqlalchemy.orm import Session, aliased

from automation_pipeline.audits.domain.audit import AuditStatus
from automation_pipeline.audits.domain.day import FailingPoint
from automation_pipeline.audits.domain.findings import Statut
from automation_pipeline.audits.tables import AuditConfigRow, AuditRow, ControlPointRow, StepResultRow
from automation_pipeline.automation.domain.quality import DayAudit, FicheSold, QualityDay
from automation_pipeline.automation.domain.run import OutcomeStatus
from automation_pipeline.automation.tables import FicheResultRow
from automation_pipeline.fiches.tables import FicheCache, RecordingRow

NAMED = 10
_TRANSCRIBED = exists().where(
    RecordingRow.fiche_cache_id == FicheCache.id, RecordingRow.has_transcription, RecordingRow.vanished_at.is_(None)
)

Query = TypeVar("Query", bound=Select[Any])  # any columns


def quality_of(session: Session, day: date) -> QualityDay:
    return QualityDay(
        day=day,
        fiches=_fiches(session, day),
        audits=_audits(session, day),
        failing_points=_failing_points(session, day),
        failures=_failures(session, day),
    )


def audits_on(session: Session, day: date) -> int:
    """How many audits count for the day's fiches."""
    return session.scalar(_counting(select(func.count()).select_from(AuditRow), day)) or 0


def _fiches(session: Session, day: date) -> tuple[FicheSold, ...]:
    query = select(FicheCache.fiche_id, FicheCache.groupe, _TRANSCRIBED).where(_sold(day))
    return tuple(FicheSold(*row) for row in session.execute(query.order_by(FicheCache.fiche_id)).tuples())


def _audits(session: Session, day: date) -> tuple[DayAudit, ...]:
    query = select(AuditRow, FicheCache.fiche_id, FicheCache.groupe, AuditConfigRow.name)
    query = _counting(query, day).join(AuditConfigRow, AuditConfigRow.id == AuditRow.audit_config_id)
    rows = session.execute(query.order_by(FicheCache.fiche_id, AuditRow.audit_config_id)).tuples()
    return tuple(_audit(day, *row) for row in rows)


def _audit(day: date, row: AuditRow, fiche_id: str, groupe: str | None, configuration: str) -> DayAudit:
    has_verdict = row.status == AuditStatus.COMPLETED
    score = None if row.score_percentage is None else float(row.score_percentage)
    return DayAudit(
        sales_date=day,
        fiche_id=fiche_id,
        groupe=groupe,
        audit_config_id=row.audit_config_id,
        configuration=configuration,
        audit_id=row.id,
        version=row.version,
        status=row.status,
        niveau=row.niveau,
        score=score,
        is_compliant=row.is_compliant,
        critical_passed=row.critical_passed if has_verdict else None,
        critical_total=row.critical_total if has_verdict else None,
        steps=row.total_steps,
        failed_steps=row.failed_steps,
        error=row.error_message,
        created_at=row.created_at,
        completed_at=row.completed_at,
    )


def _failing_points(session: Session, day: date) -> tuple[FailingPoint, ...]:
    """Of completed audits. Steps without an answer say nothing of their points."""
    failing = func.count().filter(ControlPointRow.statut.in_([Statut.ABSENT, Statut.PARTIEL]))
    applied = func.count().filter(ControlPointRow.statut != Statut.NON_APPLICABLE)
    named = (StepResultRow.step_name, ControlPointRow.point)
    of_step = and_(
        ControlPointRow.audit_id == StepResultRow.audit_id, ControlPointRow.step_position == StepResultRow.step_position
    )
    query = (
        _counting(select(*named, failing, applied).select_from(AuditRow), day)
        .join(StepResultRow, StepResultRow.audit_id == AuditRow.id)
        .join(ControlPointRow, of_step)
        .where(AuditRow.status == AuditStatus.COMPLETED, StepResultRow.error.is_(None))
        .group_by(*named)
        .having(failing > 0)
        .order_by(failing.desc(), applied, *named)
        .limit(NAMED)
    )
    return tuple(FailingPoint(*row) for row in session.execute(query).tuples())


def _failures(session: Session, day: date) -> dict[str, int]:
    """Of each fiche what its newest run came to, the most frequent cause first: retried with success, it has none."""
    cause, times = func.coalesce(FicheResultRow.reason, "unknown"), func.count()
    later = aliased(FicheResultRow)
    is_retold = exists().where(later.fiche_id == FicheResultRow.fiche_id, later.run_id > FicheResultRow.run_id)
    query = (
        select(cause, times)
        .join(FicheCache, FicheCache.fiche_id == FicheResultRow.fiche_id)
        .where(_sold(day), FicheResultRow.status == OutcomeStatus.FAILED, ~is_retold)
        .group_by(FicheResultRow.reason)
        .order_by(times.desc(), FicheResultRow.reason)
    )
    return dict(session.execute(query).tuples().all())


def _counting(query: Query, day: date) -> Query:
    """The latest audits of the day's fiches, by whatever configuration."""
    return query.join(FicheCache, FicheCache.id == AuditRow.fiche_cache_id).where(
        AuditRow.is_latest, AuditRow.deleted_at.is_(None), _sold(day)
    )


def _sold(day: date):  # noqa: ANN202  SQLAlchemy's own type
    return FicheCache.sales_date == day.isoformat()
