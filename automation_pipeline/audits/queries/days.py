"""The audits of the fiches sold on a day."""

from collections import Counter
from collections.abc import Sequence
from datetime import date
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Select, and_, exists, func, select
from sqlalchemy.orm import Session

from automation_pipeline.audits.models.audits import ENDED, AuditStatus
from automation_pipeline.audits.models.findings import Niveau, Statut
from automation_pipeline.audits.rules.days import DayAudits, FailingPoint, without_fiche_id
from automation_pipeline.audits.tables import (
    AuditConfigRow,
    AuditRow,
    ControlPointRow,
    StepResultRow,
)
from automation_pipeline.fiches.tables import CallRecordingRow, FicheCacheRow

MAX_FAILING_POINTS = 10
_AUTOMATIC = and_(AuditConfigRow.is_active, AuditConfigRow.run_automatically)
_COMPLETED = AuditRow.status == AuditStatus.COMPLETED
_TRANSCRIBED = exists().where(
    CallRecordingRow.fiche_cache_id == FicheCacheRow.id,
    CallRecordingRow.has_transcription,
    CallRecordingRow.vanished_at.is_(None),
)

Query = TypeVar("Query", bound=Select[Any])  # any columns


def missing_audits(session: Session, day: date, config_ids: Sequence[int]) -> list[tuple[str, int]]:
    """Fiche and configuration, where there is something to judge and the latest audit, if any, is
    not completed."""
    done = exists().where(
        AuditRow.fiche_cache_id == FicheCacheRow.id,
        AuditRow.audit_config_id == AuditConfigRow.id,
        AuditRow.is_latest,
        _COMPLETED,
    )
    query = (
        select(FicheCacheRow.fiche_id, AuditConfigRow.id)
        .join(AuditConfigRow, AuditConfigRow.id.in_(config_ids))
        .where(*_with_transcript(day), ~done)
        # By configuration first: the audits of one fiche then seldom run together and wait for each
        # other.
        .order_by(AuditConfigRow.id, FicheCacheRow.fiche_id)
    )
    return list(session.execute(query).tuples())


def audits_of_day(session: Session, day: date) -> DayAudits:
    """A constant number of queries, however long the day. Steps without an answer say nothing of
    their points."""
    audited, score, non_compliant, citations, removed = session.execute(_totals(day)).tuples().one()
    steps, steps_failed = session.execute(_steps(day)).tuples().one()
    return DayAudits(
        configs=session.scalar(select(func.count(AuditConfigRow.id)).where(_AUTOMATIC)) or 0,
        fiches=session.scalar(select(func.count(FicheCacheRow.id)).where(*_with_transcript(day)))
        or 0,
        audited=audited,
        by_niveau=_by_niveau(session, day),
        mean_score=None if score is None else round(float(score), 2),
        non_compliant=non_compliant,
        failures=_failures(session, day),
        steps=steps,
        steps_failed=steps_failed,
        citations=citations,
        citations_removed=removed,
        failing_points=_failing_points(session, day),
    )


def _totals(day: date) -> Select[tuple[int, float | None, int, int, int]]:
    def gated(number: str) -> ColumnElement[int]:
        return func.coalesce(func.sum(AuditRow.gating[number].as_integer()), 0)

    non_compliant = func.count().filter(AuditRow.is_compliant.is_(False))
    query = select(
        func.count(),
        func.avg(AuditRow.score_percentage),
        non_compliant,
        gated("total_citations"),
        gated("removed_citations"),
    )
    return _of_day(query.select_from(AuditRow), day).where(_COMPLETED)


def _steps(day: date) -> Select[tuple[int, int]]:
    """Of audits without a grade too: an incomplete one lacks it for a step without an answer."""
    query = select(func.count(), func.count(StepResultRow.error)).select_from(AuditRow)
    query = query.join(StepResultRow, StepResultRow.audit_id == AuditRow.id)
    return _of_day(query, day).where(AuditRow.status.in_(ENDED))


def _by_niveau(session: Session, day: date) -> dict[str, int]:
    """The best first."""
    query = (
        _of_day(select(AuditRow.niveau, func.count()), day)
        .where(_COMPLETED)
        .group_by(AuditRow.niveau)
    )
    counts = dict(session.execute(query).tuples().all())
    return {niveau: counts[niveau] for niveau in Niveau if niveau in counts}


def _failures(session: Session, day: date) -> dict[str, int]:
    query = _of_day(select(AuditRow.error_message, FicheCacheRow.fiche_id), day)
    without_grade = AuditRow.status.in_((AuditStatus.FAILED, AuditStatus.INCOMPLETE))
    failed = session.execute(query.where(without_grade)).tuples()
    return dict(
        Counter(without_fiche_id(error or "unknown", fiche_id) for error, fiche_id in failed)
    )


def _failing_points(session: Session, day: date) -> tuple[FailingPoint, ...]:
    failing = func.count().filter(ControlPointRow.statut.in_([Statut.ABSENT, Statut.PARTIEL]))
    applied = func.count().filter(ControlPointRow.statut != Statut.NON_APPLICABLE)
    of_step = (
        ControlPointRow.audit_id == StepResultRow.audit_id,
        ControlPointRow.step_position == StepResultRow.step_position,
    )
    named = (StepResultRow.step_name, ControlPointRow.point)
    query = (
        _of_day(select(*named, failing, applied).select_from(AuditRow), day)
        .join(StepResultRow, StepResultRow.audit_id == AuditRow.id)
        .join(ControlPointRow, and_(*of_step))
        .where(_COMPLETED, StepResultRow.error.is_(None))
        .group_by(*named)
        .having(failing > 0)
        .order_by(failing.desc(), applied, *named)
        .limit(MAX_FAILING_POINTS)
    )
    return tuple(FailingPoint(*row) for row in session.execute(query).tuples())


def _of_day(query: Query, day: date) -> Query:
    """The latest audits of the day's fiches by the automatic configurations. A latest audit is
    never a deleted one."""
    return (
        query.join(FicheCacheRow, FicheCacheRow.id == AuditRow.fiche_cache_id)
        .join(AuditConfigRow, AuditConfigRow.id == AuditRow.audit_config_id)
        .where(AuditRow.is_latest, _AUTOMATIC, *_with_transcript(day))
    )


def _with_transcript(day: date) -> tuple[ColumnElement[bool], ...]:
    return FicheCacheRow.sales_date == day.isoformat(), _TRANSCRIBED
