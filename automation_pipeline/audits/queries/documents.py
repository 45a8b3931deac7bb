"""Audits as JSON documents: lists, groups, one with its steps, summaries of fiches, logs."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from typing import cast as typing_cast
from zoneinfo import ZoneInfo

from pydantic.alias_generators import to_camel
from sqlalchemy import (
    ColumnElement,
    Integer,
    Select,
    SQLColumnExpression,
    Subquery,
    and_,
    case,
    cast,
    false,
    func,
    inspect,
    literal,
    null,
    or_,
    select,
)
from sqlalchemy.orm import InstrumentedAttribute, Session, aliased, load_only

from automation_pipeline.audits.models.audits import AuditStatus, StepLocation
from automation_pipeline.audits.models.findings import MissingStep, StoredStep
from automation_pipeline.audits.models.requests import (
    AuditFilter,
    AuditGrouping,
    GroupBy,
    SortBy,
    SortOrder,
    bucket_name,
    last_bucket,
)
from automation_pipeline.audits.queries.steps import (
    all_steps,
    get_step,
    histories_of_audits,
    history_by_step,
)
from automation_pipeline.audits.rules.results import (
    missing_step_document,
    missing_step_summary,
    point_document,
    step_document,
    step_summary,
)
from automation_pipeline.audits.rules.reviews import StepHistory
from automation_pipeline.audits.rules.tools import case_variants
from automation_pipeline.audits.tables import AuditConfigRow, AuditRow
from automation_pipeline.core.access import EVERYTHING, Reach
from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.core.json_model import begin_of, end_of
from automation_pipeline.fiches.queries import fiches as status
from automation_pipeline.fiches.queries.fiches import within
from automation_pipeline.fiches.tables import CallRecordingRow, FicheCacheRow, InformationRow
from automation_pipeline.storage.clock import day_of
from automation_pipeline.storage.statements import among
from automation_pipeline.storage.workflow_logs import LogPage, log_lines

Condition = ColumnElement[bool]

_UTC = ZoneInfo("UTC")
_details = aliased(InformationRow)

COMPLETED = AuditRow.status == AuditStatus.COMPLETED
# Hundredths of a percent, so that both databases reckon with whole numbers.
HUNDREDTHS = cast(func.round(AuditRow.score_percentage * 100), Integer)
GROUPE = func.coalesce(
    select(_details.groupe).where(_details.fiche_cache_id == FicheCacheRow.id).scalar_subquery(),
    FicheCacheRow.groupe,
)
_RECORDINGS = (
    select(func.count())
    .where(
        CallRecordingRow.fiche_cache_id == FicheCacheRow.id, CallRecordingRow.vanished_at.is_(None)
    )
    .scalar_subquery()
)


@dataclass(frozen=True)
class ListingScope:
    """Who looks, and whose calendar days count."""

    reach: Reach = EVERYTHING
    zone: ZoneInfo = _UTC


UNRESTRICTED = ListingScope()


def conditions(session: Session, chosen: AuditFilter, view: ListingScope) -> list[Condition]:
    """The filters of lists of audits as SQL conditions on an audit, its fiche and its
    configuration, joined."""
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
        (FicheCacheRow.fiche_id, chosen.fiche_ids),
        (AuditRow.status, chosen.status),
        (GROUPE, chosen.groupes),
        (FicheCacheRow.sales_date, [day.isoformat() for day in chosen.sales_dates]),
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
        (FicheCacheRow.fetched_at, chosen.fetched_at_from, chosen.fetched_at_to),
        (
            FicheCacheRow.last_revalidated_at,
            chosen.last_revalidated_from,
            chosen.last_revalidated_to,
        ),
    )
    for column, first, last in wanted:
        if first is not None:
            yield column >= begin_of(first, zone)
        if last is not None:
            yield column < end_of(last, zone)


def _ranges(chosen: AuditFilter) -> Iterator[Condition]:
    wanted = (
        (FicheCacheRow.sales_date, _text(chosen.sales_date_from), _text(chosen.sales_date_to)),
        (_RECORDINGS, chosen.recordings_count_min, chosen.recordings_count_max),
        (
            case((COMPLETED, HUNDREDTHS)),
            _hundredths(chosen.score_min),
            _hundredths(chosen.score_max),
        ),
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
    names = (FicheCacheRow.prospect_prenom, FicheCacheRow.prospect_nom)
    either_way = (_joined(*names), _joined(*reversed(names)))
    anywhere = (
        FicheCacheRow.fiche_id, AuditRow.tracking_id, GROUPE, FicheCacheRow.agence_nom, AuditConfigRow.name,
        AuditRow.notes, *either_way,
    )  # fmt: skip
    wanted = (
        (chosen.groupe_query, (GROUPE,)),
        (chosen.agence_query, (FicheCacheRow.agence_nom,)),
        (chosen.prospect_query, either_way),
        (chosen.q, anywhere),
    )
    return (_contains(text, columns) for text, columns in wanted if text)


def _contains(
    text: str, columns: Sequence[SQLColumnExpression[Any]]
) -> Condition:  # texts, there or not
    """Wildcards of LIKE stand for themselves."""
    return or_(
        *(
            column.icontains(strategy, autoescape=True)
            for column in columns
            for strategy in sorted(case_variants(text))
        )
    )


def _joined(
    first: InstrumentedAttribute[str | None], second: InstrumentedAttribute[str | None]
) -> ColumnElement[str]:
    return func.coalesce(first, "").concat(" ").concat(func.coalesce(second, ""))


def _text(day: date | None) -> str | None:
    return None if day is None else day.isoformat()


def _hundredths(score: float | None) -> int | None:
    return None if score is None else round(Decimal(str(score)) * 100)


Document = dict[str, object]
AuditListRow = tuple[AuditRow, str, str | None, str | None, str | None, str]

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


def select_audits(*conditions: ColumnElement[bool]):  # noqa: ANN201  SQLAlchemy's own type names every column
    """What `audit_row_document` reads."""
    fiche = (
        FicheCacheRow.fiche_id,
        GROUPE,
        FicheCacheRow.prospect_prenom,
        FicheCacheRow.prospect_nom,
    )
    return (
        select(AuditRow, *fiche, AuditConfigRow.name)
        .join(FicheCacheRow, FicheCacheRow.id == AuditRow.fiche_cache_id)
        .join(AuditConfigRow, AuditConfigRow.id == AuditRow.audit_config_id)
        .where(*conditions)
        .execution_options(populate_existing=True)
    )


def audit_row_document(found: AuditListRow) -> Document:
    """Its result has no steps."""
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


_SORTED: Mapping[SortBy, InstrumentedAttribute[Any]] = {
    SortBy.CREATED_AT: AuditRow.created_at,
    SortBy.COMPLETED_AT: AuditRow.completed_at,
    SortBy.SCORE_PERCENTAGE: AuditRow.score_percentage,
    SortBy.DURATION_MS: AuditRow.duration_ms,
}


def list_audits(
    session: Session, chosen: AuditFilter, view: ListingScope = UNRESTRICTED
) -> tuple[list[Document], int]:
    """A page of them, without steps; and how many there are without `limit` and `offset`. Two
    queries."""
    wanted = conditions(session, chosen, view)
    page = (
        select_audits(*wanted)
        .order_by(*_audit_order(chosen))
        .limit(chosen.limit)
        .offset(chosen.offset)
    )
    total = session.scalar(joined(func.count()).where(*wanted)) or 0
    return [audit_row_document(row) for row in session.execute(page).tuples()], total


def list_by_fiche(
    session: Session, chosen: AuditFilter, view: ListingScope = UNRESTRICTED
) -> tuple[list[Document], int]:
    """A page of fiches with their audits, that with the newest audit first, and how many fiches
    there are. Three queries. Averages are of completed audits."""
    wanted = conditions(session, chosen, view)
    newest = func.max(AuditRow.created_at)
    in_order = (
        (newest.asc(), FicheCacheRow.id)
        if chosen.sort_order is SortOrder.ASC
        else (newest.desc(), FicheCacheRow.id.desc())
    )
    of_fiche = (
        joined(FicheCacheRow, GROUPE, func.count(), *scores(), newest)
        .where(*wanted)
        .group_by(FicheCacheRow.id)
    )
    page = (
        session.execute(of_fiche.order_by(*in_order).limit(chosen.limit).offset(chosen.offset))
        .tuples()
        .all()
    )
    shown = among(session, AuditRow.fiche_cache_id, [row[0].id for row in page])
    audits: dict[object, list[Document]] = defaultdict(list)
    for row in session.execute(
        select_audits(*wanted, shown).order_by(*_audit_order(chosen))
    ).tuples():
        audits[row[1]].append(audit_row_document(row))
    total = (
        session.scalar(joined(func.count(AuditRow.fiche_cache_id.distinct())).where(*wanted)) or 0
    )
    return [_fiche(row, audits[row[0].fiche_id]) for row in page], total


def joined(*columns: ColumnElement[Any] | type[FicheCacheRow]) -> Select[Any]:
    """Of audits, as the conditions want them."""
    return (
        select(*columns)
        .select_from(AuditRow)
        .join(FicheCacheRow, FicheCacheRow.id == AuditRow.fiche_cache_id)
        .join(AuditConfigRow, AuditConfigRow.id == AuditRow.audit_config_id)
    )


def scores() -> tuple[ColumnElement[Any], ...]:
    """Of the completed: how many, how many of them compliant, and the sum of their scores in
    hundredths."""
    compliant = func.sum(case((COMPLETED & AuditRow.is_compliant.is_(True), 1), else_=0))
    return (
        func.sum(case((COMPLETED, 1), else_=0)),
        compliant,
        func.sum(case((COMPLETED, HUNDREDTHS))),
    )


def average(hundredths: int | None, count: int) -> float | None:
    """Rounded as people round, and the same on both databases."""
    return None if not count else float(round(Decimal(int(hundredths or 0)) / count / 100, 2))


def _audit_order(chosen: AuditFilter) -> tuple[ColumnElement[Any], ColumnElement[Any]]:
    """What has no value comes last, whichever way round."""
    column = _SORTED[chosen.sort_by]
    if chosen.sort_order is SortOrder.ASC:
        return column.asc().nulls_last(), AuditRow.id.asc()
    return column.desc().nulls_last(), AuditRow.id.desc()


def _fiche(row: tuple[Any, ...], audits: list[Document]) -> Document:
    fiche, groupe, count, completed, compliant, hundredths, newest = row
    return {
        "fiche": {
            "ficheId": fiche.fiche_id,
            "groupe": groupe,
            "agenceNom": fiche.agence_nom,
            "prospectNom": fiche.prospect_nom,
            "prospectPrenom": fiche.prospect_prenom,
            "salesDate": fiche.sales_date,
        },
        "audits": audits,
        "summary": {
            "totalAudits": count,
            "compliantCount": compliant,
            "averageScore": average(hundredths, completed),
            "latestAuditDate": iso(newest),
        },
    }


_COLUMNS: Mapping[GroupBy, ColumnElement[Any] | InstrumentedAttribute[Any]] = {
    GroupBy.FICHE: FicheCacheRow.fiche_id,
    GroupBy.AUDIT_CONFIG: AuditRow.audit_config_id,
    GroupBy.STATUS: AuditRow.status,
    GroupBy.NIVEAU: AuditRow.niveau,
    GroupBy.AUTOMATION_SCHEDULE: AuditRow.automation_schedule_id,
    GroupBy.AUTOMATION_RUN: AuditRow.automation_run_id,
    GroupBy.GROUPE: GROUPE,
}
# Groups on a scale are shown in its order, all others by their size.
_ORDERED_BY_KEY = {GroupBy.CREATED_DAY, GroupBy.SCORE_BUCKET}


def group_audits(
    session: Session, chosen: AuditGrouping, view: ListingScope = UNRESTRICTED
) -> tuple[list[Document], int]:
    """A page of groups, and how many there are. Three queries at most."""
    wanted = conditions(session, chosen, view)
    key = _key(session, chosen, wanted, view.zone)
    # Grouped from outside: the key may hold parameters, and PostgreSQL takes no two of them for the
    # same.
    of_each = joined(
        key.label("key"),
        AuditRow.status.label("status"),
        case((COMPLETED & AuditRow.is_compliant.is_(True), 1), else_=0).label("compliant"),
        case((COMPLETED, HUNDREDTHS)).label("score"),
    )
    audits = of_each.where(*wanted).subquery()
    groups = _grouped(audits).group_by(audits.c.key).order_by(*_group_order(chosen, audits.c.key))
    rows = session.execute(groups.limit(chosen.limit).offset(chosen.offset)).tuples().all()
    total = session.scalar(
        select(func.count()).select_from(select(audits.c.key).distinct().subquery())
    )
    return [_group(row, chosen) for row in rows], total or 0


def _key(
    session: Session, chosen: AuditGrouping, wanted: list[Condition], zone: ZoneInfo
) -> ColumnElement[Any]:
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


def _group_order(chosen: AuditGrouping, key: ColumnElement[Any]) -> tuple[ColumnElement[Any], ...]:
    ascending = chosen.sort_order is SortOrder.ASC
    if chosen.group_by in _ORDERED_BY_KEY:
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


def audit_document(session: Session, audit_id: int, *, details: bool = True) -> Document:
    """One audit, deleted or not. Without `details` its result has no steps."""
    found = session.execute(select_audits(AuditRow.id == audit_id)).tuples().one_or_none()
    if found is None:
        raise NotFoundError("Audit not found")
    [document] = _with_details(session, [found]) if details else [audit_row_document(found)]
    return document


def latest_of_fiche(session: Session, fiche_id: str, *, details: bool = True) -> list[Document]:
    """The latest audit of the fiche by each configuration, newest first; deleted ones are never the
    latest."""
    latest = select_audits(FicheCacheRow.fiche_id == fiche_id, AuditRow.is_latest.is_(True))
    found = (
        session.execute(latest.order_by(AuditRow.created_at.desc(), AuditRow.id.desc()))
        .tuples()
        .all()
    )
    return _with_details(session, found) if details else [audit_row_document(one) for one in found]


def audit_step_document(session: Session, place: StepLocation) -> Document:
    history = history_by_step(session, place.audit_id).get(place.position, StepHistory())
    return step_document(get_step(session, place), history)


def control_point_document(session: Session, place: StepLocation) -> Document:
    """NotFoundError when there is no such control point; `place` names one."""
    step = get_step(session, place)
    assert place.point is not None  # noqa: S101  the caller asks for a control point
    where = {
        "audit_id": str(place.audit_id),
        "step_position": step.position,
        "step_name": step.name,
    }
    point = point_document(step.finding.points[place.point - 1])
    return {**where, "control_point_index": place.point, **point}


def _with_details(session: Session, audits: Sequence[AuditListRow]) -> list[Document]:
    """As many queries for many as for one."""
    ids = [row.id for row, *_ in audits]
    steps, histories = all_steps(session, ids), histories_of_audits(session, ids)
    documents: list[Document] = []
    for found in audits:
        audit_id, document = found[0].id, audit_row_document(found)
        of_it = [
            _step_document(step, histories.get((audit_id, step.position), StepHistory()))
            for step in steps[audit_id]
        ]
        whole = {"resultData": _with_steps(document["resultData"], of_it)}
        documents.append(
            {**document, **whole, "stepResults": [_step_summary(step) for step in steps[audit_id]]}
        )
    return documents


def _step_document(step: StoredStep | MissingStep, history: StepHistory) -> dict[str, object]:
    return (
        missing_step_document(step)
        if isinstance(step, MissingStep)
        else step_document(step, history)
    )


def _step_summary(step: StoredStep | MissingStep) -> dict[str, object]:
    return missing_step_summary(step) if isinstance(step, MissingStep) else step_summary(step)


def _with_steps(result: object, steps: list[Document]) -> Document:
    """Also in the result of an audit that has not ended, which says nothing else of its
    findings."""
    whole = _part(result)
    audit = _part(whole.get("audit"))
    results = {**_part(audit.get("results")), "steps": steps}
    return {**whole, "audit": {**audit, "results": results}}


def _part(value: object) -> Mapping[str, object]:
    return typing_cast("Mapping[str, object]", value or {})


# Not the result: it is as long as everything that was found.
_SUMMARY_COLUMNS = (
    AuditRow.audit_config_id, AuditRow.status, AuditRow.score_percentage, AuditRow.niveau, AuditRow.is_compliant,
    AuditRow.error_message, AuditRow.created_at, AuditRow.completed_at,
)  # fmt: skip


def fiche_status(session: Session, fiche_id: str, reach: Reach) -> Document:
    """NotFoundError when it is hidden or missing."""
    found = fiche_statuses(session, [fiche_id], reach)[fiche_id]
    if not found["hasData"]:
        raise NotFoundError("Fiche not found in database")
    return found


def fiche_statuses(session: Session, fiche_ids: Iterable[str], reach: Reach) -> dict[str, Document]:
    """By fiche id; what is hidden or missing has the empty status."""
    known = status.statuses_of(session, fiche_ids, reach)
    audits = audits_of_fiches(
        session, [fiche_id for fiche_id, payload in known.items() if payload["hasData"]]
    )
    return {
        fiche_id: {**payload, "audit": audits.get(fiche_id) or summarise_audits(())}
        for fiche_id, payload in known.items()
    }


def fiches_with_audits(
    session: Session, days: Sequence[date], reach: Reach, page: status.FichePage
) -> tuple[list[Document], int]:
    """The rows of a date list; and how many there are on all pages."""
    rows, total = status.fiches_sold(session, days, reach, page)
    audits = audits_of_fiches(session, [str(row["ficheId"]) for row in rows])
    return [
        {**row, "audit": audits.get(str(row["ficheId"])) or summarise_audits(())} for row in rows
    ], total


def audits_of_fiches(session: Session, fiche_ids: Sequence[str]) -> dict[str, Document]:
    """Of those that have one. The latest of each configuration counts, deleted ones never do."""
    query = (
        select(FicheCacheRow.fiche_id, AuditRow, AuditConfigRow.name)
        .join(FicheCacheRow, FicheCacheRow.id == AuditRow.fiche_cache_id)
        .join(AuditConfigRow, AuditConfigRow.id == AuditRow.audit_config_id)
        .where(among(session, FicheCacheRow.fiche_id, fiche_ids), AuditRow.is_latest.is_(True))
        .order_by(AuditRow.created_at.desc(), AuditRow.id.desc())
        .options(load_only(*_SUMMARY_COLUMNS))
    )
    found: dict[str, list[tuple[AuditRow, str]]] = {}
    for fiche_id, row, name in session.execute(query).tuples():
        found.setdefault(fiche_id, []).append((row, name))
    return {fiche_id: summarise_audits(rows) for fiche_id, rows in found.items()}


def summarise_audits(audits: Sequence[tuple[AuditRow, str]]) -> Document:
    """Of one fiche, the newest first. Only what was judged to the end is compliant or not."""
    rows = [row for row, _ in audits]
    judged = [row for row in rows if row.status == AuditStatus.COMPLETED]
    scores = [float(row.score_percentage) for row in judged if row.score_percentage is not None]
    listed = [_audit(row, name) for row, name in audits]
    return {
        "total": len(rows),
        "completed": len(judged),
        "pending": sum(row.status == AuditStatus.PENDING for row in rows),
        "running": sum(row.status == AuditStatus.RUNNING for row in rows),
        "compliant": sum(row.is_compliant is True for row in judged),
        "nonCompliant": sum(row.is_compliant is False for row in judged),
        "averageScore": round(sum(scores) / len(scores), 2) if scores else None,
        "latestAudit": listed[0] if listed else None,
        "audits": listed,
    }


def _audit(row: AuditRow, config_name: str) -> Document:
    judged = row.status == AuditStatus.COMPLETED
    return {
        "id": str(row.id),
        "auditConfigId": str(row.audit_config_id),
        "auditConfigName": config_name,
        "status": row.status,
        "scorePercentage": float(row.score_percentage)
        if judged and row.score_percentage is not None
        else None,
        "niveau": row.niveau if judged else None,
        "isCompliant": row.is_compliant if judged else None,
        "errorMessage": row.error_message,
        "createdAt": iso(row.created_at),
        "completedAt": row.completed_at and iso(row.completed_at),
    }


def audit_logs(
    session: Session, audit_id: int, *, level: str | None = None, limit: int = 200, offset: int = 0
) -> tuple[list[Document], int]:
    """Oldest first, and how many there are without `limit` and `offset`. Its reruns, reviews and
    changes are there."""
    tracking_id = session.scalar(select(AuditRow.tracking_id).where(AuditRow.id == audit_id))
    if tracking_id is None:
        raise NotFoundError("Audit not found")
    # Traced by the id of the row; by the tracking id only what was written before there was one.
    traces = (str(audit_id), tracking_id)
    return log_lines(
        session,
        LogPage(workflow="audit", trace_ids=traces, level=level, limit=limit, offset=offset),
    )
