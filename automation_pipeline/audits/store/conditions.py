"""The filters of lists of audits as SQL conditions on an audit, its fiche and its configuration, joined."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from sqlalchemy import ColumnElement, Integer, SQLColumnExpression, and_, case, cast, false, func, or_, select
from sqlalchemy.orm import InstrumentedAttribute, Session, aliased

from automation_pipeline.audits.domain.audit import AuditStatus
from automation_pipeline.audits.domain.audit_filter import AuditFilter
from automation_pipeline.audits.domain.spellings import spellings
from automation_pipeline.audits.tables import AuditConfigRow, AuditRow
from automation_pipeline.core.access import EVERYTHING, Reach
from automation_pipeline.core.query_values import begin_of, end_of
from automation_pipeline.fiches.store.visibility import within
from automation_pipeline.fiches.tables import FicheCache, InformationRow, RecordingRow
from automation_pipeline.storage.bulk import among

Condition = ColumnElement[bool]

_UTC = ZoneInfo("UTC")
_details = aliased(InformationRow)

COMPLETED = AuditRow.status == AuditStatus.COMPLETED
# Hundredths of a percent, so that both databases reckon with whole numbers.
HUNDREDTHS = cast(func.round(AuditRow.score_percentage * 100), Integer)
GROUPE = func.coalesce(
    select(_details.groupe).where(_details.fiche_cache_id == FicheCache.id).scalar_subquery(), FicheCache.groupe
)
_RECORDINGS = (
    select(func.count())
    .where(RecordingRow.fiche_cache_id == FicheCache.id, RecordingRow.vanished_at.is_(None))
    .scalar_subquery()
)


@dataclass(frozen=True)
class View:
    """Who looks, and whose calendar days count."""

    reach: Reach = EVERYTHING
    zone: ZoneInfo = _UTC


EVERYBODY = View()


def conditions(session: Session, chosen: AuditFilter, view: View) -> list[Condition]:
    return [
        within(session, view.reach),
        *_lists(session, chosen),
        *_times(chosen, view.zone),
        *_ranges(chosen),
        *_flags(chosen),
        *_texts(chosen),
    ]


def _lists(session: Session, chosen: AuditFilter) -> Iterator[Condition]:
    texts = (
        (FicheCache.fiche_id, chosen.fiche_ids),
        (AuditRow.status, chosen.status),
        (GROUPE, chosen.groupes),
        (FicheCache.sales_date, [day.isoformat() for day in chosen.sales_dates]),
        (AuditRow.niveau, chosen.niveau),
        (AuditRow.trigger_source, chosen.trigger_source),
    )
    ids = (
        (AuditRow.audit_config_id, chosen.audit_config_ids),
        (AuditRow.automation_schedule_id, chosen.automation_schedule_ids),
        (AuditRow.automation_run_id, chosen.automation_run_ids),
    )
    yield from (among(session, column, named) for column, named in texts if named)
    yield from (among(session, column, named) for column, named in ids if named)


def _times(chosen: AuditFilter, zone: ZoneInfo) -> Iterator[Condition]:
    wanted = (
        (AuditRow.created_at, chosen.date_from, chosen.date_to),
        (FicheCache.fetched_at, chosen.fetched_at_from, chosen.fetched_at_to),
        (FicheCache.last_revalidated_at, chosen.last_revalidated_from, chosen.last_revalidated_to),
    )
    for column, first, last in wanted:
        if first is not None:
            yield column >= begin_of(first, zone)
        if last is not None:
            yield column < end_of(last, zone)


def _ranges(chosen: AuditFilter) -> Iterator[Condition]:
    wanted = (
        (FicheCache.sales_date, _text(chosen.sales_date_from), _text(chosen.sales_date_to)),
        (_RECORDINGS, chosen.recordings_count_min, chosen.recordings_count_max),
        (case((COMPLETED, HUNDREDTHS)), _hundredths(chosen.score_min), _hundredths(chosen.score_max)),
        (AuditRow.duration_ms, chosen.duration_min_ms, chosen.duration_max_ms),
        (AuditRow.total_tokens, chosen.tokens_min, chosen.tokens_max),
    )
    for column, least, most in wanted:
        if least is not None:
            yield column >= least
        if most is not None:
            yield column <= most


def _flags(chosen: AuditFilter) -> Iterator[Condition]:
    wanted = (
        (
            chosen.is_compliant,
            and_(COMPLETED, AuditRow.is_compliant.is_(True)),
            and_(COMPLETED, AuditRow.is_compliant.is_(False)),
        ),
        (chosen.has_recordings, _RECORDINGS > 0, _RECORDINGS == 0),
        (
            chosen.has_failed_steps,
            func.coalesce(AuditRow.failed_steps, 0) > 0,
            func.coalesce(AuditRow.failed_steps, 0) == 0,
        ),
        (chosen.latest_only or None, AuditRow.is_latest.is_(True), false()),
        (False if not chosen.include_deleted else None, false(), AuditRow.deleted_at.is_(None)),
    )
    return (if_so if flag else if_not for flag, if_so, if_not in wanted if flag is not None)


def _texts(chosen: AuditFilter) -> Iterator[Condition]:
    names = (FicheCache.prospect_prenom, FicheCache.prospect_nom)
    either_way = (_joined(*names), _joined(*reversed(names)))
    anywhere = (
        FicheCache.fiche_id, AuditRow.tracking_id, GROUPE, FicheCache.agence_nom, AuditConfigRow.name, AuditRow.notes,
        *either_way,
    )  # fmt: skip
    wanted = (
        (chosen.groupe_query, (GROUPE,)),
        (chosen.agence_query, (FicheCache.agence_nom,)),
        (chosen.prospect_query, either_way),
        (chosen.q, anywhere),
    )
    return (_holds(text, columns) for text, columns in wanted if text)


def _holds(text: str, columns: Sequence[SQLColumnExpression[Any]]) -> Condition:  # texts, there or not
    """Wildcards of LIKE stand for themselves."""
    return or_(*(column.icontains(way, autoescape=True) for column in columns for way in sorted(spellings(text))))


def _joined(first: InstrumentedAttribute[str | None], second: InstrumentedAttribute[str | None]) -> ColumnElement[str]:
    return func.coalesce(first, "").concat(" ").concat(func.coalesce(second, ""))


def _text(day: date | None) -> str | None:
    return None if day is None else day.isoformat()


def _hundredths(score: float | None) -> int | None:
    return None if score is None else round(Decimal(str(score)) * 100)
