"""The audits of the fiches sold on a day: which are missing, their counts, and their checks."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Select, and_, exists, func, select
from sqlalchemy.orm import Session

from automation_pipeline.audits.models.audits import ENDED, AuditStatus, Niveau, Statut
from automation_pipeline.audits.tables import (
    AuditConfigRow,
    AuditRow,
    ControlPointRow,
    StepResultRow,
)
from automation_pipeline.fiches.models.days import DayFinding
from automation_pipeline.fiches.rules import never_requested
from automation_pipeline.fiches.tables import CallRecordingRow, FicheCacheRow

MIN_AUDITED = 0.95
MAX_STEPS_FAILED = 0.05
MAX_REMOVED = 0.10
AUDIT_CHECKS = ("every_fiche_audited", "steps_judged", "evidence_holds")
NOT_CONFIGURED = (
    "No active audit configuration runs automatically, so nothing was audited: import one that has runAutomatically "
    "with `automation audit-configs import`."
)
MAX_FAILING_POINTS = 10
_AUTOMATIC = and_(AuditConfigRow.is_active, AuditConfigRow.run_automatically)
_COMPLETED = AuditRow.status == AuditStatus.COMPLETED
_TRANSCRIBED = exists().where(
    CallRecordingRow.fiche_cache_id == FicheCacheRow.id,
    CallRecordingRow.has_transcription,
    CallRecordingRow.vanished_at.is_(None),
)
Query = TypeVar("Query", bound=Select[Any])  # any columns


@dataclass(frozen=True)
class FailingPoint:
    """A control point that applied to `judged` audits and was ABSENT or PARTIEL in `failing` of them."""

    step: str
    point: str
    failing: int
    judged: int

    @property
    def share(self) -> float:
        return _share(self.failing, self.judged)


@dataclass(frozen=True, kw_only=True)
class DayAudits:
    """The audits of each fiche with a transcript by each of the automatic `configs`.

    Scores, citations and control points are those of completed audits. `failures` counts the other
    audits by the reason why they have no grade.
    """

    configs: int
    fiches: int
    audited: int
    by_niveau: Mapping[str, int]
    mean_score: float | None
    non_compliant: int
    failures: Mapping[str, int]
    steps: int
    steps_failed: int
    citations: int
    citations_removed: int
    failing_points: tuple[FailingPoint, ...]

    @property
    def wanted(self) -> int:
        return self.fiches * self.configs

    @property
    def coverage(self) -> float:
        return self.audited / self.wanted if self.wanted else 1.0

    @property
    def non_compliant_share(self) -> float:
        return _share(self.non_compliant, self.audited)

    @property
    def failed(self) -> int:
        return sum(self.failures.values())


def judge_audits(day: DayAudits, *, has_sales_list: bool) -> tuple[DayFinding, ...]:
    """One finding per check. Without a sales list of the day, no check passes."""
    if not has_sales_list:
        return never_requested(AUDIT_CHECKS)
    every_fiche, steps, evidence = AUDIT_CHECKS
    return (
        _every_fiche_audited(every_fiche, day),
        DayFinding(
            steps,
            _share(day.steps_failed, day.steps) <= MAX_STEPS_FAILED,
            f"{day.steps_failed} of {day.steps} steps have no answer of the model.",
        ),
        DayFinding(
            evidence,
            _share(day.citations_removed, day.citations) <= MAX_REMOVED,
            f"{day.citations_removed} of {day.citations} quotations were removed: they are too short or are "
            "not in the transcript.",
        ),
    )


def without_fiche_id(error: str, fiche_id: str) -> str:
    """The error without the fiche's id, so that equal errors of different fiches count as one cause."""
    return re.sub(rf"\b([Ff]iche) {re.escape(fiche_id)}\b", r"\1", error)


def _every_fiche_audited(check: str, day: DayAudits) -> DayFinding:
    if not day.configs:
        return DayFinding(check, passed=False, message=NOT_CONFIGURED)
    by = f"{day.configs} automatic configuration" + ("s" if day.configs > 1 else "")
    return DayFinding(
        check,
        day.coverage >= MIN_AUDITED,
        f"{day.audited} of {day.wanted} audits are completed: {day.fiches} fiches with a transcript by {by}.",
    )


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _with_transcript(day: date) -> tuple[ColumnElement[bool], ...]:
    return FicheCacheRow.sales_date == day.isoformat(), _TRANSCRIBED


def _of_day(query: Query, day: date) -> Query:
    """The latest audits of the day's fiches by the automatic configurations. A deleted audit is never the
    latest."""
    return (
        query.select_from(AuditRow)
        .join(FicheCacheRow, FicheCacheRow.id == AuditRow.fiche_cache_id)
        .join(AuditConfigRow, AuditConfigRow.id == AuditRow.audit_config_id)
        .where(AuditRow.is_latest, _AUTOMATIC, *_with_transcript(day))
    )


def missing_audits(session: Session, day: date, config_ids: Sequence[int]) -> list[tuple[str, int]]:
    """Fiche and configuration of the audits that can be judged and whose latest version is not completed."""
    query = (
        select(FicheCacheRow.fiche_id, AuditConfigRow.id)
        .join(AuditConfigRow, AuditConfigRow.id.in_(config_ids))
        .where(
            *_with_transcript(day),
            ~exists().where(
                AuditRow.fiche_cache_id == FicheCacheRow.id,
                AuditRow.audit_config_id == AuditConfigRow.id,
                AuditRow.is_latest,
                _COMPLETED,
            ),
        )
        # By configuration first, so that audits of one fiche seldom run at the same time and wait
        # for each other.
        .order_by(AuditConfigRow.id, FicheCacheRow.fiche_id)
    )
    return list(session.execute(query).tuples())


def audits_of_day(session: Session, day: date) -> DayAudits:
    """The number of queries is constant."""
    completed = select(
        func.count(),
        func.avg(AuditRow.score_percentage),
        func.count().filter(AuditRow.is_compliant.is_(False)),
        func.coalesce(func.sum(AuditRow.gating["total_citations"].as_integer()), 0),
        func.coalesce(func.sum(AuditRow.gating["removed_citations"].as_integer()), 0),
    )
    totals = session.execute(_of_day(completed, day).where(_COMPLETED)).tuples().one()
    audited, score, non_compliant, citations, removed = totals
    # Incomplete audits count too: they have no grade because a step has no answer.
    attempted = _of_day(select(func.count(), func.count(StepResultRow.error)), day)
    attempted = attempted.join(StepResultRow, StepResultRow.audit_id == AuditRow.id)
    steps, steps_failed = (
        session.execute(attempted.where(AuditRow.status.in_(ENDED))).tuples().one()
    )
    counts = dict(
        session.execute(
            _of_day(select(AuditRow.niveau, func.count()), day)
            .where(_COMPLETED)
            .group_by(AuditRow.niveau)
        )
        .tuples()
        .all()
    )
    without_grade = AuditRow.status.in_((AuditStatus.FAILED, AuditStatus.INCOMPLETE))
    failed = session.execute(
        _of_day(select(AuditRow.error_message, FicheCacheRow.fiche_id), day).where(without_grade)
    ).tuples()
    return DayAudits(
        configs=session.scalar(select(func.count(AuditConfigRow.id)).where(_AUTOMATIC)) or 0,
        fiches=session.scalar(select(func.count(FicheCacheRow.id)).where(*_with_transcript(day)))
        or 0,
        audited=audited,
        by_niveau={niveau: counts[niveau] for niveau in Niveau if niveau in counts},
        mean_score=None if score is None else round(float(score), 2),
        non_compliant=non_compliant,
        failures=Counter(without_fiche_id(error or "unknown", fiche) for error, fiche in failed),
        steps=steps,
        steps_failed=steps_failed,
        citations=citations,
        citations_removed=removed,
        failing_points=_failing_points(session, day),
    )


def _failing_points(session: Session, day: date) -> tuple[FailingPoint, ...]:
    failing = func.count().filter(ControlPointRow.statut.in_([Statut.ABSENT, Statut.PARTIEL]))
    applied = func.count().filter(ControlPointRow.statut != Statut.NON_APPLICABLE)
    is_of_step = and_(
        ControlPointRow.audit_id == StepResultRow.audit_id,
        ControlPointRow.step_position == StepResultRow.step_position,
    )
    names = (StepResultRow.step_name, ControlPointRow.point)
    query = (
        _of_day(select(*names, failing, applied), day)
        .join(StepResultRow, StepResultRow.audit_id == AuditRow.id)
        .join(ControlPointRow, is_of_step)
        .where(_COMPLETED, StepResultRow.error.is_(None))
        .group_by(*names)
        .having(failing > 0)
        .order_by(failing.desc(), applied, *names)
        .limit(MAX_FAILING_POINTS)
    )
    return tuple(FailingPoint(*row) for row in session.execute(query).tuples())
