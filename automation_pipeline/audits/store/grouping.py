"""Audits counted by what they have in common. The database groups them: there may be any number."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from sqlalchemy import ColumnElement, Subquery, case, func, literal, null, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from automation_pipeline.audits.domain.audit import AuditStatus
from automation_pipeline.audits.domain.audit_filter import AuditGrouping, GroupBy, SortOrder
from automation_pipeline.audits.domain.score_buckets import bucket_name, last_bucket
from automation_pipeline.audits.store.conditions import (
    COMPLETED,
    EVERYBODY,
    GROUPE,
    HUNDREDTHS,
    Condition,
    View,
    conditions,
)
from automation_pipeline.audits.store.documents import Document
from automation_pipeline.audits.store.listing import average, joined
from automation_pipeline.audits.tables import AuditRow
from automation_pipeline.fiches.tables import FicheCache
from automation_pipeline.storage.local_days import day_of

_COLUMNS: Mapping[GroupBy, ColumnElement[Any] | InstrumentedAttribute[Any]] = {
    GroupBy.FICHE: FicheCache.fiche_id,
    GroupBy.AUDIT_CONFIG: AuditRow.audit_config_id,
    GroupBy.STATUS: AuditRow.status,
    GroupBy.NIVEAU: AuditRow.niveau,
    GroupBy.AUTOMATION_SCHEDULE: AuditRow.automation_schedule_id,
    GroupBy.AUTOMATION_RUN: AuditRow.automation_run_id,
    GroupBy.GROUPE: GROUPE,
}
# Groups on a scale are shown in its order, all others by their size.
_SCALES = {GroupBy.CREATED_DAY, GroupBy.SCORE_BUCKET}


def group_audits(session: Session, chosen: AuditGrouping, view: View = EVERYBODY) -> tuple[list[Document], int]:
    """A page of groups, and how many there are. Three queries at most."""
    wanted = conditions(session, chosen, view)
    key = _key(session, chosen, wanted, view.zone)
    # Grouped from outside: the key may hold parameters, and PostgreSQL takes no two of them for the same.
    of_each = joined(
        key.label("key"),
        AuditRow.status.label("status"),
        case((COMPLETED & AuditRow.is_compliant.is_(True), 1), else_=0).label("compliant"),
        case((COMPLETED, HUNDREDTHS)).label("score"),
    )
    audits = of_each.where(*wanted).subquery()
    groups = _grouped(audits).group_by(audits.c.key).order_by(*_order(chosen, audits.c.key))
    rows = session.execute(groups.limit(chosen.limit).offset(chosen.offset)).tuples().all()
    total = session.scalar(select(func.count()).select_from(select(audits.c.key).distinct().subquery()))
    return [_group(row, chosen) for row in rows], total or 0


def _key(session: Session, chosen: AuditGrouping, wanted: list[Condition], zone: ZoneInfo) -> ColumnElement[Any]:
    match chosen.group_by:
        case GroupBy.CREATED_DAY:
            return _created_day(session, wanted, zone)
        case GroupBy.SCORE_BUCKET:
            size = chosen.bucket_size
            bucket = HUNDREDTHS // literal(100 * size) * literal(size)
            last = last_bucket(size)
            return case((COMPLETED, case((bucket > last, last), else_=bucket)))
        case by:
            return _COLUMNS[by].expression


def _created_day(session: Session, wanted: list[Condition], zone: ZoneInfo) -> ColumnElement[Any]:
    ends = joined(func.min(AuditRow.created_at), func.max(AuditRow.created_at)).where(*wanted)
    span: tuple[datetime | None, datetime | None] = session.execute(ends).tuples().one()
    return (
        null()
        if span[0] is None or span[1] is None
        else day_of(AuditRow.created_at.expression, (span[0], span[1]), zone)
    )


def _grouped(audits: Subquery):  # noqa: ANN202  SQLAlchemy's own type names every column
    counts = (func.sum(case((audits.c.status == status, 1), else_=0)) for status in AuditStatus)
    score = audits.c.score
    return select(
        audits.c.key,
        func.count(),
        func.count(score),
        func.sum(audits.c.compliant),
        func.sum(score),
        func.min(score),
        func.max(score),
        *counts,
    )


def _order(chosen: AuditGrouping, key: ColumnElement[Any]) -> tuple[ColumnElement[Any], ...]:
    ascending = chosen.sort_order is SortOrder.ASC
    if chosen.group_by in _SCALES:
        return ((key.asc() if ascending else key.desc()).nulls_last(),)
    count = func.count()
    return count.asc() if ascending else count.desc(), key.asc().nulls_last()


def _group(row: tuple[Any, ...], chosen: AuditGrouping) -> Document:
    key, count, completed, compliant, total, least, most, *by_status = row
    return {
        "key": _name(key, chosen),
        "count": count,
        "compliantCount": compliant,
        "nonCompliantCount": completed - compliant,
        "avgScore": average(total, completed),
        "minScore": None if least is None else least / 100,
        "maxScore": None if most is None else most / 100,
        "statusCounts": dict(zip(AuditStatus, by_status, strict=True)),
    }


def _name(key: object, chosen: AuditGrouping) -> str | None:
    if isinstance(key, int) and chosen.group_by is GroupBy.SCORE_BUCKET:
        return bucket_name(key, chosen.bucket_size)
    return None if key is None else str(key)
