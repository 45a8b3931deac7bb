"""The audits that a run made, with what each step found and the quotations that prove it."""

import math
from collections import defaultdict
from collections.abc import Sequence

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from automation_pipeline.audits.tables import AuditConfigRow, AuditRow, CitationRow, ControlPointRow, StepResultRow
from automation_pipeline.automation.domain.run_report import PointVerdict, Quotation, ReportedAudit, StepVerdict
from automation_pipeline.fiches.tables import FicheCache
from automation_pipeline.storage.bulk import among

_Place = tuple[int, int, int]


def count_audits(session: Session, run_id: int) -> int:
    return session.scalar(select(func.count()).select_from(AuditRow).where(*_of_run(run_id))) or 0


def reported_audits(
    session: Session, run_id: int, fiche_ids: Sequence[str], most_in_full: int
) -> tuple[ReportedAudit, ...]:
    """By fiche, in the order given."""
    query = (
        select(AuditRow, FicheCache.fiche_id, AuditConfigRow.name)
        .join(FicheCache, FicheCache.id == AuditRow.fiche_cache_id)
        .join(AuditConfigRow, AuditConfigRow.id == AuditRow.audit_config_id)
        .where(*_of_run(run_id), among(session, FicheCache.fiche_id, fiche_ids))
        .order_by(AuditRow.audit_config_id, AuditRow.id)
    )
    rows = session.execute(query).tuples().all()
    worst = sorted(rows, key=lambda found: (_badness(found[0]), found[0].id))[:most_in_full]
    steps = _steps(session, [row.id for row, *_ in worst])
    place = {fiche_id: number for number, fiche_id in enumerate(fiche_ids)}
    in_order = sorted(rows, key=lambda found: place[found[1]])
    return tuple(_audit(row, fiche_id, name, tuple(steps[row.id])) for row, fiche_id, name in in_order)


def _badness(row: AuditRow) -> float:
    """The worst score first; an audit without one has nothing to show."""
    return math.inf if row.score_percentage is None else float(row.score_percentage)


def _audit(row: AuditRow, fiche_id: str, configuration: str, steps: tuple[StepVerdict, ...]) -> ReportedAudit:
    return ReportedAudit(
        audit_id=row.id,
        fiche_id=fiche_id,
        configuration=configuration,
        status=row.status,
        niveau=row.niveau,
        score=None if row.score_percentage is None else float(row.score_percentage),
        critical_passed=row.critical_passed,
        critical_total=row.critical_total,
        error=row.error_message,
        steps=steps,
    )


def _of_run(run_id: int) -> tuple[ColumnElement[bool], ...]:
    return AuditRow.automation_run_id == run_id, AuditRow.deleted_at.is_(None)


def _steps(session: Session, audit_ids: Sequence[int]) -> dict[int, list[StepVerdict]]:
    points = _points(session, audit_ids)
    query = select(StepResultRow).where(among(session, StepResultRow.audit_id, audit_ids))
    steps: dict[int, list[StepVerdict]] = defaultdict(list)
    for row in session.scalars(query.order_by(StepResultRow.audit_id, StepResultRow.step_position)):
        verdict = StepVerdict(
            position=row.step_position,
            name=row.step_name,
            is_critical=row.is_critical,
            conforme=row.conforme,
            score=row.score,
            weight=row.weight,
            commentaire=row.commentaire_global,
            error=row.error,
            points=tuple(points[row.audit_id, row.step_position]),
        )
        steps[row.audit_id].append(verdict)
    return steps


def _points(session: Session, audit_ids: Sequence[int]) -> dict[tuple[int, int], list[PointVerdict]]:
    quotations = _quotations(session, audit_ids)
    row = ControlPointRow
    query = (
        select(row.audit_id, row.step_position, row.control_point_index, row.point, row.statut, row.commentaire)
        .where(among(session, row.audit_id, audit_ids))
        .order_by(row.audit_id, row.step_position, row.control_point_index)
    )
    points: dict[tuple[int, int], list[PointVerdict]] = defaultdict(list)
    for audit_id, step, index, *found in session.execute(query).tuples():
        point, statut, commentaire = found
        points[audit_id, step].append(
            PointVerdict(point, statut, commentaire, tuple(quotations[audit_id, step, index]))
        )
    return points


def _quotations(session: Session, audit_ids: Sequence[int]) -> dict[_Place, list[Quotation]]:
    row = CitationRow
    place = (row.audit_id, row.step_position, row.control_point_index)
    said = (row.texte, row.speaker, row.minutage, row.recording_date, row.recording_time)
    query = select(*place, *said).where(among(session, row.audit_id, audit_ids)).order_by(*place, row.citation_index)
    quotations: dict[_Place, list[Quotation]] = defaultdict(list)
    for audit_id, step, point, *found in session.execute(query).tuples():
        quotations[audit_id, step, point].append(Quotation(*found))
    return quotations
