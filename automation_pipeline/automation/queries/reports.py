"""Reports: a run with its audits and their verdicts, and the quality of a day."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from sqlalchemy import ColumnElement, Select, and_, case, exists, func, select
from sqlalchemy.orm import Session, aliased

from automation_pipeline.audits.days import FailingPoint
from automation_pipeline.audits.models.audits import AuditStatus, Statut
from automation_pipeline.audits.tables import (
    AuditConfigRow,
    AuditRow,
    CitationRow,
    ControlPointRow,
    StepResultRow,
)
from automation_pipeline.automation.models.runs import (
    LedgerTally,
    OutcomeStatus,
    ReasonCount,
    ReportedFiche,
    Run,
    reported_fiche,
)
from automation_pipeline.automation.queries.ledger import as_outcome, reasons_of_run, tally
from automation_pipeline.automation.queries.runs import as_run
from automation_pipeline.automation.tables import FicheResultRow, RunRow, ScheduleRow
from automation_pipeline.core.errors import NotFoundError, UpstreamError
from automation_pipeline.fiches.models.days import DayFinding
from automation_pipeline.fiches.rules import never_requested
from automation_pipeline.fiches.tables import CallRecordingRow, FicheCacheRow
from automation_pipeline.storage.statements import among


@dataclass(frozen=True)
class Quotation:
    texte: str
    speaker: str
    minutage: str
    recording_date: str
    recording_time: str


@dataclass(frozen=True)
class PointVerdict:
    point: str
    statut: str
    commentaire: str
    quotations: tuple[Quotation, ...]


@dataclass(frozen=True, kw_only=True)
class StepVerdict:
    """A step with an `error` could not be judged and has no verdict."""

    position: int
    name: str
    is_critical: bool
    conforme: str | None
    score: int | None
    weight: int
    commentaire: str
    error: str | None
    points: tuple[PointVerdict, ...]


@dataclass(frozen=True, kw_only=True)
class ReportedAudit:
    """Only the audits that the report shows in full have steps."""

    audit_id: int
    fiche_id: str
    configuration: str
    status: str
    niveau: str
    score: float | None
    critical_passed: int
    critical_total: int
    error: str | None
    steps: tuple[StepVerdict, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RunReport:
    """`fiches` and `audits` are those that the report lists; `tally` and `audit_count` count all of
    them."""

    run: Run
    schedule_name: str
    phases: tuple["ReportedPhase", ...]
    tally: LedgerTally
    causes: Sequence[ReasonCount]
    fiches: tuple[ReportedFiche, ...]
    audits: tuple[ReportedAudit, ...]
    audit_count: int


@dataclass(frozen=True)
class ReportedPhase:
    """A phase without an end is in progress, or the run was interrupted in it."""

    name: str
    begun_at: datetime
    ended_at: datetime | None


def phase_spans(
    started_at: datetime,
    selected_at: datetime | None,
    fetched_at: datetime | None,
    completed_at: datetime | None,
) -> tuple[ReportedPhase, ...]:
    """The phases that have started. Transcription and audits are one phase: a fiche is audited as
    soon as its own calls are transcribed."""
    marks = [
        ("selection", selected_at),
        ("fetching", fetched_at),
        ("transcribing and auditing", completed_at),
    ]
    spans: list[ReportedPhase] = []
    started: datetime | None = started_at
    for name, ended in marks:
        if started is None:
            break
        spans.append(ReportedPhase(name, started, ended))
        started = ended
    return tuple(spans)


REPORT_CHECK = "report_is_complete"


@dataclass(frozen=True)
class FicheSold:
    """`transcribed`: the fiche has a transcript to judge."""

    fiche_id: str
    groupe: str | None
    transcribed: bool


@dataclass(frozen=True)
class DayAudit:
    """The latest audit of a fiche by a configuration: one row of the day's file. An audit that has
    not ended has no score."""

    sales_date: date
    fiche_id: str
    groupe: str | None
    audit_config_id: int
    configuration: str
    audit_id: int
    version: int
    status: str
    niveau: str
    score: float | None
    is_compliant: bool | None
    critical_passed: int | None
    critical_total: int | None
    steps: int
    failed_steps: int | None
    error: str | None
    created_at: datetime
    completed_at: datetime | None


@dataclass(frozen=True)
class QualityDay:
    """`failures`: the number of the day's fiches that failed in their newest run, by cause."""

    day: date
    fiches: tuple[FicheSold, ...]
    audits: tuple[DayAudit, ...]
    failing_points: tuple[FailingPoint, ...]
    failures: Mapping[str, int]


def evaluate_report(rows: int | None, audits: int, *, has_sales_list: bool) -> DayFinding:
    """`rows` of the file, or None without a file; `audits` is the current number of the day's
    audits."""
    if not has_sales_list:
        return never_requested((REPORT_CHECK,))[0]
    if rows is None:
        return DayFinding(REPORT_CHECK, passed=False, message="The day has no report.", grave=True)
    return DayFinding(
        REPORT_CHECK,
        rows == audits,
        f"{rows} rows in the file, {audits} audits of the day.",
        grave=True,
    )


_PointKey = tuple[int, int, int]  # audit, step, control point


def count_audits(session: Session, run_id: int) -> int:
    return (
        session.scalar(select(func.count()).select_from(AuditRow).where(*_audits_of_run(run_id)))
        or 0
    )


def reported_audits(
    session: Session, run_id: int, fiche_ids: Sequence[str], max_detailed_audits: int
) -> tuple[ReportedAudit, ...]:
    """By fiche, in the order given."""
    query = (
        select(AuditRow, FicheCacheRow.fiche_id, AuditConfigRow.name)
        .join(FicheCacheRow, FicheCacheRow.id == AuditRow.fiche_cache_id)
        .join(AuditConfigRow, AuditConfigRow.id == AuditRow.audit_config_id)
        .where(*_audits_of_run(run_id), among(session, FicheCacheRow.fiche_id, fiche_ids))
        .order_by(AuditRow.audit_config_id, AuditRow.id)
    )
    rows = session.execute(query).tuples().all()
    scored = [(row.score_percentage, row.id) for row, *_ in rows]
    # The worst score first; an audit without one has nothing to show.
    worst = sorted(scored, key=lambda audit: (audit[0] is None, audit[0] or 0, audit[1]))
    steps = _steps(session, [audit_id for _, audit_id in worst[:max_detailed_audits]])
    order = {fiche_id: number for number, fiche_id in enumerate(fiche_ids)}
    return tuple(
        ReportedAudit(
            audit_id=row.id,
            fiche_id=fiche_id,
            configuration=name,
            status=row.status,
            niveau=row.niveau,
            score=_score(row),
            critical_passed=row.critical_passed,
            critical_total=row.critical_total,
            error=row.error_message,
            steps=tuple(steps[row.id]),
        )
        for row, fiche_id, name in sorted(rows, key=lambda found: order[found[1]])
    )


def _score(row: AuditRow) -> float | None:
    return None if row.score_percentage is None else float(row.score_percentage)


def _audits_of_run(run_id: int) -> tuple[ColumnElement[bool], ...]:
    return AuditRow.automation_run_id == run_id, AuditRow.deleted_at.is_(None)


def _steps(session: Session, audit_ids: Sequence[int]) -> dict[int, list[StepVerdict]]:
    """By audit, with their control points and quotations."""
    quotations: dict[_PointKey, list[Quotation]] = defaultdict(list)
    of_audits = among(session, CitationRow.audit_id, audit_ids)
    query = select(CitationRow).where(of_audits).order_by(CitationRow.citation_index)
    for row in session.scalars(query):
        quotations[row.audit_id, row.step_position, row.control_point_index].append(
            Quotation(row.texte, row.speaker, row.minutage, row.recording_date, row.recording_time)
        )
    points: dict[tuple[int, int], list[PointVerdict]] = defaultdict(list)
    of_audits = among(session, ControlPointRow.audit_id, audit_ids)
    query = select(ControlPointRow).where(of_audits).order_by(ControlPointRow.control_point_index)
    for row in session.scalars(query):
        quoted = quotations[row.audit_id, row.step_position, row.control_point_index]
        points[row.audit_id, row.step_position].append(
            PointVerdict(row.point, row.statut, row.commentaire, tuple(quoted))
        )
    steps: dict[int, list[StepVerdict]] = defaultdict(list)
    of_audits = among(session, StepResultRow.audit_id, audit_ids)
    query = select(StepResultRow).where(of_audits).order_by(StepResultRow.step_position)
    for row in session.scalars(query):
        steps[row.audit_id].append(
            StepVerdict(
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
        )
    return steps


MAX_FICHES = 2000
MAX_AUDITS_IN_FULL = 300
_WORST_FIRST = case(
    (FicheResultRow.status == OutcomeStatus.FAILED, 0),
    (FicheResultRow.status == OutcomeStatus.PENDING, 1),
    (FicheResultRow.status == OutcomeStatus.IGNORED, 2),
    else_=3,
)


def run_report(
    session: Session,
    run_id: int,
    *,
    max_listed_fiches: int = MAX_FICHES,
    max_detailed_audits: int = MAX_AUDITS_IN_FULL,
) -> RunReport:
    """Failed fiches come first. The report has the audits of the listed fiches, and the steps of
    the `max_detailed_audits` worst ones."""
    query = select(RunRow, ScheduleRow.name).join(ScheduleRow, ScheduleRow.id == RunRow.schedule_id)
    found = session.execute(query.where(RunRow.id == run_id)).tuples().one_or_none()
    if found is None:
        raise NotFoundError(f"Run {run_id} not found")
    row, schedule_name = found
    fiches = _reported_fiches(session, run_id, max_listed_fiches)
    return RunReport(
        run=as_run(row),
        schedule_name=schedule_name,
        phases=phase_spans(
            row.began_at or row.started_at, row.selected_at, row.fetched_at, row.completed_at
        ),
        tally=tally(session, run_id, row.selected_fiches),
        causes=reasons_of_run(session, run_id),
        fiches=fiches,
        audits=reported_audits(
            session, run_id, [fiche.fiche_id for fiche in fiches], max_detailed_audits
        ),
        audit_count=count_audits(session, run_id),
    )


def _reported_fiches(session: Session, run_id: int, limit: int) -> tuple[ReportedFiche, ...]:
    query = (
        select(FicheResultRow, FicheCacheRow.groupe)
        .outerjoin(FicheCacheRow, FicheCacheRow.fiche_id == FicheResultRow.fiche_id)
        .where(FicheResultRow.run_id == run_id)
        .order_by(_WORST_FIRST, FicheResultRow.position)
        .limit(limit)
    )
    return tuple(
        reported_fiche(as_outcome(row), groupe) for row, groupe in session.execute(query).tuples()
    )


MAX_FAILING_POINTS = 10
_TRANSCRIBED = exists().where(
    CallRecordingRow.fiche_cache_id == FicheCacheRow.id,
    CallRecordingRow.has_transcription,
    CallRecordingRow.vanished_at.is_(None),
)

Query = TypeVar("Query", bound=Select[Any])  # any columns


def quality_of(session: Session, day: date) -> QualityDay:
    sold = select(FicheCacheRow.fiche_id, FicheCacheRow.groupe, _TRANSCRIBED).where(_sold(day))
    fiches = session.execute(sold.order_by(FicheCacheRow.fiche_id)).tuples()
    return QualityDay(
        day=day,
        fiches=tuple(FicheSold(*row) for row in fiches),
        audits=_day_audits(session, day),
        failing_points=_failing_points(session, day),
        failures=_failures(session, day),
    )


def audits_on(session: Session, day: date) -> int:
    """The number of latest audits of the day's fiches."""
    return session.scalar(_counting(select(func.count()).select_from(AuditRow), day)) or 0


def _day_audits(session: Session, day: date) -> tuple[DayAudit, ...]:
    query = select(AuditRow, FicheCacheRow.fiche_id, FicheCacheRow.groupe, AuditConfigRow.name)
    query = _counting(query, day).join(
        AuditConfigRow, AuditConfigRow.id == AuditRow.audit_config_id
    )
    rows = session.execute(
        query.order_by(FicheCacheRow.fiche_id, AuditRow.audit_config_id)
    ).tuples()
    return tuple(_day_audit(day, *row) for row in rows)


def _day_audit(
    day: date, row: AuditRow, fiche_id: str, groupe: str | None, configuration: str
) -> DayAudit:
    has_verdict = row.status == AuditStatus.COMPLETED
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
        score=_score(row),
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
    """Of completed audits. Points of steps without an answer do not count."""
    failing = func.count().filter(ControlPointRow.statut.in_([Statut.ABSENT, Statut.PARTIEL]))
    applied = func.count().filter(ControlPointRow.statut != Statut.NON_APPLICABLE)
    named = (StepResultRow.step_name, ControlPointRow.point)
    of_step = and_(
        ControlPointRow.audit_id == StepResultRow.audit_id,
        ControlPointRow.step_position == StepResultRow.step_position,
    )
    query = (
        _counting(select(*named, failing, applied).select_from(AuditRow), day)
        .join(StepResultRow, StepResultRow.audit_id == AuditRow.id)
        .join(ControlPointRow, of_step)
        .where(AuditRow.status == AuditStatus.COMPLETED, StepResultRow.error.is_(None))
        .group_by(*named)
        .having(failing > 0)
        .order_by(failing.desc(), applied, *named)
        .limit(MAX_FAILING_POINTS)
    )
    return tuple(FailingPoint(*row) for row in session.execute(query).tuples())


def _failures(session: Session, day: date) -> dict[str, int]:
    """The causes of failure in the newest run of each fiche, the most frequent first. A fiche that
    a retry completed has none."""
    cause, times = func.coalesce(FicheResultRow.reason, "unknown"), func.count()
    later = aliased(FicheResultRow)
    has_newer_outcome = exists().where(
        later.fiche_id == FicheResultRow.fiche_id, later.run_id > FicheResultRow.run_id
    )
    query = (
        select(cause, times)
        .join(FicheCacheRow, FicheCacheRow.fiche_id == FicheResultRow.fiche_id)
        .where(_sold(day), FicheResultRow.status == OutcomeStatus.FAILED, ~has_newer_outcome)
        .group_by(FicheResultRow.reason)
        .order_by(times.desc(), FicheResultRow.reason)
    )
    return dict(session.execute(query).tuples().all())


def _counting(query: Query, day: date) -> Query:
    """Restrict the query to the latest audits of the day's fiches, by any configuration."""
    return query.join(FicheCacheRow, FicheCacheRow.id == AuditRow.fiche_cache_id).where(
        AuditRow.is_latest, AuditRow.deleted_at.is_(None), _sold(day)
    )


def _sold(day: date):  # noqa: ANN202  SQLAlchemy's own type
    return FicheCacheRow.sales_date == day.isoformat()


def report_document(report: RunReport) -> dict[str, Any]:
    return _reports().dump_python(report, mode="json", by_alias=True)


def parse_report(document: Mapping[str, Any]) -> RunReport:
    """Raises UpstreamError if the document is not a report."""
    try:
        return _reports().validate_python(document)
    except ValidationError:
        raise UpstreamError(
            "The report of the run cannot be read: the API is of another version"
        ) from None


@cache
def _reports() -> TypeAdapter[RunReport]:
    return TypeAdapter(RunReport)
