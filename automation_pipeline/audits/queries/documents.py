"""Audits as JSON documents: lists, groups, one with its steps, log entries, and summaries of fiches."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, cast
from zoneinfo import ZoneInfo

from pydantic.alias_generators import to_camel
from sqlalchemy import (
    ColumnElement,
    Integer,
    Select,
    SQLColumnExpression,
    and_,
    case,
    func,
    inspect,
    literal,
    null,
    or_,
    select,
)
from sqlalchemy.orm import InstrumentedAttribute, Session, defer

from automation_pipeline.audits.models.audits import AuditStatus, StepLocation
from automation_pipeline.audits.models.requests import (
    AuditFilter,
    AuditGrouping,
    GroupBy,
    SortOrder,
    bucket_name,
    last_bucket,
)
from automation_pipeline.audits.queries.steps import all_steps, get_step, step_histories
from automation_pipeline.audits.rules.verdicts import point_document, step_document, step_summary
from automation_pipeline.audits.tables import AuditConfigRow, AuditRow
from automation_pipeline.core.access import EVERYTHING, Reach
from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.core.json_model import begin_of, end_of
from automation_pipeline.fiches.queries import fiches
from automation_pipeline.fiches.queries.mirror import within
from automation_pipeline.fiches.tables import INFORMATION, CallRecordingRow, FicheCacheRow
from automation_pipeline.storage.history import LogPage, log_lines
from automation_pipeline.storage.statements import among, day_of

Document = dict[str, object]
Condition = ColumnElement[bool]
AuditListRow = tuple[AuditRow, str, str | None, str | None, str | None, str]

_UTC = ZoneInfo("UTC")
_details = INFORMATION.alias()
_IS_COMPLETED = AuditRow.status == AuditStatus.COMPLETED
_IS_COMPLIANT = _IS_COMPLETED & AuditRow.is_compliant.is_(True)
# Hundredths of a percent, so that both databases calculate with integers.
_HUNDREDTHS = func.round(AuditRow.score_percentage * 100).cast(Integer)
_SCORE = case((_IS_COMPLETED, _HUNDREDTHS))
_GROUPE = func.coalesce(
    select(_details.c.groupe)
    .where(_details.c.fiche_cache_id == FicheCacheRow.id)
    .scalar_subquery(),
    FicheCacheRow.groupe,
)
_RECORDINGS = (
    select(func.count())
    .where(
        CallRecordingRow.fiche_cache_id == FicheCacheRow.id, CallRecordingRow.vanished_at.is_(None)
    )
    .scalar_subquery()
)
_HIDDEN = {
    "fiche_cache_id",
    "config_fingerprint",
    "fence",
    "touched_at",
    "result_data",
    "timeline_fingerprint",
}
_IDS = {"id", "audit_config_id", "automation_schedule_id", "automation_run_id"}
_NAMES = [column.key for column in inspect(AuditRow).column_attrs if column.key not in _HIDDEN]


@dataclass(frozen=True)
class ListingScope:
    """The fiches within the caller's scope, and the time zone of calendar days."""

    reach: Reach = EVERYTHING
    zone: ZoneInfo = _UTC


UNRESTRICTED = ListingScope()


def _joined(*columns: SQLColumnExpression[Any] | type[AuditRow | FicheCacheRow]) -> Select[Any]:
    """Audits with their fiche and configuration, to which the conditions of a filter apply."""
    return (
        select(*columns)
        .select_from(AuditRow)
        .join(FicheCacheRow, FicheCacheRow.id == AuditRow.fiche_cache_id)
        .join(AuditConfigRow, AuditConfigRow.id == AuditRow.audit_config_id)
    )


def _conditions(session: Session, chosen: AuditFilter, scope: ListingScope) -> list[Condition]:
    texts = (
        (FicheCacheRow.fiche_id, chosen.fiche_ids),
        (AuditRow.status, chosen.status),
        (_GROUPE, chosen.groupes),
        (FicheCacheRow.sales_date, [day.isoformat() for day in chosen.sales_dates]),
        (AuditRow.niveau, chosen.niveau),
        (AuditRow.trigger_source, chosen.trigger_source),
    )
    ids = (
        (AuditRow.audit_config_id, chosen.audit_config_ids),
        (AuditRow.automation_schedule_id, chosen.automation_schedule_ids),
        (AuditRow.automation_run_id, chosen.automation_run_ids),
    )
    failed_steps = func.coalesce(AuditRow.failed_steps, 0)
    flags = (
        (chosen.is_compliant, _IS_COMPLIANT, and_(_IS_COMPLETED, AuditRow.is_compliant.is_(False))),
        (chosen.has_recordings, _RECORDINGS > 0, _RECORDINGS == 0),
        (chosen.has_failed_steps, failed_steps > 0, failed_steps == 0),
    )
    first_name = func.coalesce(FicheCacheRow.prospect_prenom, "")
    last_name = func.coalesce(FicheCacheRow.prospect_nom, "")
    names = (
        first_name.concat(" ").concat(last_name),
        last_name.concat(" ").concat(first_name),
    )
    agence = FicheCacheRow.agence_nom
    searches = (
        (chosen.groupe_query, (_GROUPE,)),
        (chosen.agence_query, (agence,)),
        (chosen.prospect_query, names),
        (
            chosen.q,
            (
                FicheCacheRow.fiche_id,
                AuditRow.tracking_id,
                _GROUPE,
                agence,
                AuditConfigRow.name,
                AuditRow.notes,
                *names,
            ),
        ),
    )
    found = [within(session, scope.reach), *_bounds(chosen, scope.zone)]
    found += [among(session, column, values) for column, values in texts if values]
    found += [among(session, column, values) for column, values in ids if values]
    found += [yes if flag else no for flag, yes, no in flags if flag is not None]
    found += [_contains(text, columns) for text, columns in searches if text]
    if chosen.latest_only:
        found.append(AuditRow.is_latest.is_(True))
    if not chosen.include_deleted:
        found.append(AuditRow.deleted_at.is_(None))
    return found


def _bounds(chosen: AuditFilter, zone: ZoneInfo) -> Iterator[Condition]:
    moments = (
        (AuditRow.created_at, chosen.date_from, chosen.date_to),
        (FicheCacheRow.fetched_at, chosen.fetched_at_from, chosen.fetched_at_to),
        (
            FicheCacheRow.last_revalidated_at,
            chosen.last_revalidated_from,
            chosen.last_revalidated_to,
        ),
    )
    for column, first, last in moments:
        if first is not None:
            yield column >= begin_of(first, zone)
        if last is not None:
            yield column < end_of(last, zone)
    sold_from, sold_to = chosen.sales_date_from, chosen.sales_date_to
    score_min, score_max = (
        None if score is None else round(Decimal(str(score)) * 100)
        for score in (chosen.score_min, chosen.score_max)
    )
    ranges = (
        (
            FicheCacheRow.sales_date,
            sold_from and sold_from.isoformat(),
            sold_to and sold_to.isoformat(),
        ),
        (_RECORDINGS, chosen.recordings_count_min, chosen.recordings_count_max),
        (_SCORE, score_min, score_max),
        (AuditRow.duration_ms, chosen.duration_min_ms, chosen.duration_max_ms),
        (AuditRow.total_tokens, chosen.tokens_min, chosen.tokens_max),
    )
    for column, least, most in ranges:
        if least is not None:
            yield column >= least
        if most is not None:
            yield column <= most


def _contains(text: str, columns: Sequence[SQLColumnExpression[Any]]) -> Condition:
    """Databases ignore the case of unaccented letters only, so the accented ones are tried in each case."""
    variants = sorted({text, text.lower(), text.upper(), text.title()})
    return or_(*(column.icontains(one, autoescape=True) for column in columns for one in variants))


def _audits(*conditions: Condition) -> Select[Any]:
    """The columns that `_audit_document` reads."""
    return (
        _joined(
            AuditRow,
            FicheCacheRow.fiche_id,
            _GROUPE,
            FicheCacheRow.prospect_prenom,
            FicheCacheRow.prospect_nom,
            AuditConfigRow.name,
        )
        .where(*conditions)
        .execution_options(populate_existing=True)
    )


def _audit_document(found: AuditListRow) -> Document:
    """The audit without its steps."""
    row, fiche_id, groupe, first_name, last_name, config_name = found
    return {
        **{to_camel(name): _json(name, getattr(row, name)) for name in _NAMES},
        "ficheId": fiche_id,
        "groupe": groupe,
        "prospectName": " ".join(filter(None, (first_name, last_name))),
        "auditConfigName": config_name,
        "resultData": row.result_data,
    }


def _json(name: str, value: object) -> object:
    if name in _IDS:
        return None if value is None else str(value)
    if isinstance(value, datetime):
        return iso(value)
    return float(value) if isinstance(value, Decimal) else value


def _audit_order(chosen: AuditFilter) -> tuple[ColumnElement[Any], ColumnElement[Any]]:
    """Audits without the value come last in either order."""
    column = getattr(AuditRow, chosen.sort_by.value)
    if chosen.sort_order is SortOrder.ASC:
        return column.asc().nulls_last(), AuditRow.id.asc()
    return column.desc().nulls_last(), AuditRow.id.desc()


def list_audits(
    session: Session, chosen: AuditFilter, scope: ListingScope = UNRESTRICTED
) -> tuple[list[Document], int]:
    """A page of audits without steps, and the number of audits on all pages."""
    wanted = _conditions(session, chosen, scope)
    rows = session.execute(
        _audits(*wanted).order_by(*_audit_order(chosen)).limit(chosen.limit).offset(chosen.offset)
    ).tuples()
    total = session.scalar(_joined(func.count()).where(*wanted)) or 0
    return [_audit_document(row) for row in rows], total


def list_by_fiche(
    session: Session, chosen: AuditFilter, scope: ListingScope = UNRESTRICTED
) -> tuple[list[Document], int]:
    """A page of fiches with their audits, by their newest audit, and the number of fiches. Averages are of
    completed audits."""
    wanted = _conditions(session, chosen, scope)
    newest = func.max(AuditRow.created_at)
    in_order = (newest.desc(), FicheCacheRow.id.desc())
    if chosen.sort_order is SortOrder.ASC:
        in_order = (newest.asc(), FicheCacheRow.id)
    fiches = _joined(
        FicheCacheRow,
        _GROUPE,
        func.count(),
        func.count(_SCORE),
        func.sum(case((_IS_COMPLIANT, 1), else_=0)),
        func.sum(_SCORE),
        newest,
    )
    fiches = fiches.where(*wanted).group_by(FicheCacheRow.id).order_by(*in_order)
    page = session.execute(fiches.limit(chosen.limit).offset(chosen.offset)).tuples().all()
    on_page = among(session, AuditRow.fiche_cache_id, [row[0].id for row in page])
    audits: dict[str, list[Document]] = defaultdict(list)
    for row in session.execute(_audits(*wanted, on_page).order_by(*_audit_order(chosen))).tuples():
        audits[row[1]].append(_audit_document(row))
    total = _joined(func.count(AuditRow.fiche_cache_id.distinct())).where(*wanted)
    documents: list[Document] = [
        {
            "fiche": {
                "ficheId": fiche.fiche_id,
                "groupe": groupe,
                "agenceNom": fiche.agence_nom,
                "prospectNom": fiche.prospect_nom,
                "prospectPrenom": fiche.prospect_prenom,
                "salesDate": fiche.sales_date,
            },
            "audits": audits[fiche.fiche_id],
            "summary": {
                "totalAudits": count,
                "compliantCount": compliant,
                "averageScore": _average(hundredths, completed),
                "latestAuditDate": iso(latest),
            },
        }
        for fiche, groupe, count, completed, compliant, hundredths, latest in page
    ]
    return documents, session.scalar(total) or 0


def _average(hundredths: int | None, count: int) -> float | None:
    """Computed in decimals, rounded half to even: the result is the same on both databases."""
    return None if not count else float(round(Decimal(int(hundredths or 0)) / count / 100, 2))


_GROUPS: Mapping[GroupBy, ColumnElement[Any] | InstrumentedAttribute[Any]] = {
    GroupBy.FICHE: FicheCacheRow.fiche_id,
    GroupBy.AUDIT_CONFIG: AuditRow.audit_config_id,
    GroupBy.STATUS: AuditRow.status,
    GroupBy.NIVEAU: AuditRow.niveau,
    GroupBy.AUTOMATION_SCHEDULE: AuditRow.automation_schedule_id,
    GroupBy.AUTOMATION_RUN: AuditRow.automation_run_id,
    GroupBy.GROUPE: _GROUPE,
}


def group_audits(
    session: Session, chosen: AuditGrouping, scope: ListingScope = UNRESTRICTED
) -> tuple[list[Document], int]:
    """A page of groups, and the number of groups. Days and scores are in their own order, others by size."""
    wanted = _conditions(session, chosen, scope)
    # The grouping is outside the subquery: the key may have parameters, and PostgreSQL does not
    # recognise two parameters with equal values as the same expression.
    audits = _joined(
        _group_key(session, chosen, wanted, scope.zone).label("key"),
        AuditRow.status.label("status"),
        case((_IS_COMPLIANT, 1), else_=0).label("compliant"),
        _SCORE.label("score"),
    )
    audits = audits.where(*wanted).subquery()
    key, score, count = audits.c.key, audits.c.score, func.count()
    ascending = chosen.sort_order is SortOrder.ASC
    in_order = (count.asc() if ascending else count.desc(), key.asc().nulls_last())
    if chosen.group_by in {GroupBy.CREATED_DAY, GroupBy.SCORE_BUCKET}:
        in_order = ((key.asc() if ascending else key.desc()).nulls_last(),)
    groups = select(
        key,
        count,
        func.count(score),
        func.sum(audits.c.compliant),
        func.sum(score),
        func.min(score),
        func.max(score),
        *(func.sum(case((audits.c.status == status, 1), else_=0)) for status in AuditStatus),
    )
    groups = groups.group_by(key).order_by(*in_order).limit(chosen.limit).offset(chosen.offset)
    rows = session.execute(groups).tuples().all()
    total = select(func.count()).select_from(select(key).distinct().subquery())
    return [_group_document(row, chosen) for row in rows], session.scalar(total) or 0


def _group_key(
    session: Session, chosen: AuditGrouping, wanted: list[Condition], zone: ZoneInfo
) -> ColumnElement[Any]:
    if chosen.group_by is GroupBy.SCORE_BUCKET:
        size, last = chosen.bucket_size, last_bucket(chosen.bucket_size)
        bucket = _HUNDREDTHS // literal(100 * size) * literal(size)
        return case((_IS_COMPLETED, case((bucket > last, last), else_=bucket)))
    if chosen.group_by is not GroupBy.CREATED_DAY:
        return _GROUPS[chosen.group_by].expression
    ends = _joined(func.min(AuditRow.created_at), func.max(AuditRow.created_at)).where(*wanted)
    first, last = session.execute(ends).tuples().one()
    return null() if first is None else day_of(AuditRow.created_at.expression, (first, last), zone)


def _group_document(row: tuple[Any, ...], chosen: AuditGrouping) -> Document:
    key, count, completed, compliant, total, least, most, *by_status = row
    name = None if key is None else str(key)
    if key is not None and chosen.group_by is GroupBy.SCORE_BUCKET:
        name = bucket_name(key, chosen.bucket_size)
    return {
        "key": name,
        "count": count,
        "compliantCount": compliant,
        "nonCompliantCount": completed - compliant,
        "avgScore": _average(total, completed),
        "minScore": None if least is None else least / 100,
        "maxScore": None if most is None else most / 100,
        "statusCounts": dict(zip(AuditStatus, by_status, strict=True)),
    }


def audit_document(session: Session, audit_id: int, *, details: bool = True) -> Document:
    """One audit, deleted or not. Without `details` its result has no steps. Raises NotFoundError."""
    found = _documents(session, _audits(AuditRow.id == audit_id), details=details)
    if not found:
        raise NotFoundError("Audit not found")
    return found[0]


def latest_of_fiche(session: Session, fiche_id: str, *, details: bool = True) -> list[Document]:
    """The latest audit of the fiche by each configuration, newest first."""
    latest = _audits(FicheCacheRow.fiche_id == fiche_id, AuditRow.is_latest.is_(True))
    newest_first = latest.order_by(AuditRow.created_at.desc(), AuditRow.id.desc())
    return _documents(session, newest_first, details=details)


def _documents(session: Session, audits: Select[Any], *, details: bool) -> list[Document]:
    """The number of queries is constant. The steps are also in the result of an audit that has not ended."""
    rows = session.execute(audits).tuples().all()
    documents = [_audit_document(row) for row in rows]
    if not details:
        return documents
    ids = [row[0].id for row in rows]
    steps, histories = all_steps(session, ids), step_histories(session, ids)
    for audit_id, document in zip(ids, documents, strict=True):
        result = _part(document["resultData"])
        audit = _part(result.get("audit"))
        results = {
            **_part(audit.get("results")),
            "steps": [
                step_document(step, histories[audit_id, step.position]) for step in steps[audit_id]
            ],
        }
        document["resultData"] = {**result, "audit": {**audit, "results": results}}
        document["stepResults"] = [step_summary(step) for step in steps[audit_id]]
    return documents


def _part(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value or {})


def audit_step_document(session: Session, location: StepLocation) -> Document:
    return step_document(
        get_step(session, location),
        step_histories(session, [location.audit_id])[location.audit_id, location.position],
    )


def control_point_document(session: Session, audit_id: int, position: int, index: int) -> Document:
    """Raises NotFoundError for an unknown control point; `index` counts from 1."""
    step = get_step(session, StepLocation(audit_id, position, index))
    return {
        "audit_id": str(audit_id),
        "step_position": step.position,
        "step_name": step.name,
        "control_point_index": index,
        **point_document(step.finding.points[index - 1]),
    }


def audit_logs(
    session: Session, audit_id: int, *, level: str | None = None, limit: int = 200, offset: int = 0
) -> tuple[list[Document], int]:
    """A page of the log entries of the audit, its reruns and reviews, oldest first, and their number."""
    tracking_id = session.scalar(select(AuditRow.tracking_id).where(AuditRow.id == audit_id))
    if tracking_id is None:
        raise NotFoundError("Audit not found")
    # Entries from before the audit had a row are traced by its tracking id.
    return log_lines(
        session,
        LogPage(
            workflow="audit",
            trace_ids=(str(audit_id), tracking_id),
            level=level,
            limit=limit,
            offset=offset,
        ),
    )


def fiche_status(session: Session, fiche_id: str, reach: Reach) -> Document:
    """Raises NotFoundError for a hidden or unknown fiche."""
    found = fiche_statuses(session, [fiche_id], reach)[fiche_id]
    if not found["hasData"]:
        raise NotFoundError("Fiche not found in database")
    return found


def fiche_statuses(session: Session, fiche_ids: Iterable[str], reach: Reach) -> dict[str, Document]:
    """By fiche id; hidden and unknown fiches have the empty status."""
    known = fiches.statuses_of(session, fiche_ids, reach)
    audits = _audits_of_fiches(
        session, [fiche_id for fiche_id, status in known.items() if status["hasData"]]
    )
    return {
        fiche_id: {**status, "audit": _summarise(audits[fiche_id])}
        for fiche_id, status in known.items()
    }


def fiches_with_audits(
    session: Session, days: Sequence[date], reach: Reach, page: fiches.FichePage
) -> tuple[list[Document], int]:
    """A page of the fiches sold on the days, and the number of fiches on all pages."""
    rows, total = fiches.fiches_sold(session, days, reach, page)
    audits = _audits_of_fiches(session, [str(row["ficheId"]) for row in rows])
    return [{**row, "audit": _summarise(audits[str(row["ficheId"])])} for row in rows], total


def _audits_of_fiches(
    session: Session, fiche_ids: Sequence[str]
) -> Mapping[str, list[tuple[AuditRow, str]]]:
    """The latest audits of each fiche with the names of their configurations, newest first."""
    query = (
        _joined(FicheCacheRow.fiche_id, AuditRow, AuditConfigRow.name)
        .where(among(session, FicheCacheRow.fiche_id, fiche_ids), AuditRow.is_latest.is_(True))
        .order_by(AuditRow.created_at.desc(), AuditRow.id.desc())
        .options(defer(AuditRow.result_data))
    )
    found: dict[str, list[tuple[AuditRow, str]]] = defaultdict(list)
    for fiche_id, row, config_name in session.execute(query).tuples():
        found[fiche_id].append((row, config_name))
    return found


def _summarise(audits: Sequence[tuple[AuditRow, str]]) -> Document:
    """Of one fiche, newest first. Only completed audits have a grade."""
    rows = [row for row, _ in audits]
    completed = [row for row in rows if row.status == AuditStatus.COMPLETED]
    scores = [float(row.score_percentage) for row in completed if row.score_percentage is not None]
    listed = [_brief(row, name, is_graded=row in completed) for row, name in audits]
    return {
        "total": len(rows),
        "completed": len(completed),
        "pending": sum(row.status == AuditStatus.PENDING for row in rows),
        "running": sum(row.status == AuditStatus.RUNNING for row in rows),
        "compliant": sum(row.is_compliant is True for row in completed),
        "nonCompliant": sum(row.is_compliant is False for row in completed),
        "averageScore": round(sum(scores) / len(scores), 2) if scores else None,
        "latestAudit": listed[0] if listed else None,
        "audits": listed,
    }


def _brief(row: AuditRow, config_name: str, *, is_graded: bool) -> Document:
    score = row.score_percentage
    return {
        "id": str(row.id),
        "auditConfigId": str(row.audit_config_id),
        "auditConfigName": config_name,
        "status": row.status,
        "scorePercentage": float(score) if is_graded and score is not None else None,
        "niveau": row.niveau if is_graded else None,
        "isCompliant": row.is_compliant if is_graded else None,
        "errorMessage": row.error_message,
        "createdAt": iso(row.created_at),
        "completedAt": row.completed_at and iso(row.completed_at),
    }
