"""The views of runs and schedules within reach: lists, progress, reasons, logs, details."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import cast

from sqlalchemy import ColumnElement, Select, and_, func, or_, select
from sqlalchemy.orm import Session

from automation_pipeline.automation.models.runs import (
    FicheOutcome,
    FicheStage,
    LogEntry,
    OutcomeStatus,
    PhaseLength,
    Run,
    RunFilter,
    RunNotification,
    RunStatus,
)
from automation_pipeline.automation.models.schedules import Schedule
from automation_pipeline.automation.queries.ledger import outcomes, reasons_of_run
from automation_pipeline.automation.queries.runs import (
    as_run,
    get_run,
    requested_selection,
    time_by_phase,
)
from automation_pipeline.automation.queries.schedules import (
    as_schedule,
    get_schedule,
    list_schedules,
)
from automation_pipeline.automation.rules.schedules import is_selection_visible, is_visible
from automation_pipeline.automation.tables import (
    FicheResultRow,
    LogRow,
    NotificationRow,
    RunRow,
    ScheduleRow,
)
from automation_pipeline.core.access import Reach, Scope
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.core.events import LogLevel
from automation_pipeline.core.json_model import as_document
from automation_pipeline.fiches.queries.mirror import visible_fiches
from automation_pipeline.storage.statements import among

LOG_LEVELS = tuple(LogLevel)


@dataclass(frozen=True)
class RunProgress:
    """The number of a run's fiches that have reached each step. `to_work` fiches have fetched
    details and recordings, and are past the filters. `audited` fiches have an ended audit."""

    selected: int
    fetched: int
    to_work: int
    transcribed: int
    audited: int
    ended: int
    audits: int


def progress_of(session: Session, run_id: int) -> RunProgress:
    """One query over the ledger."""
    fiche = FicheResultRow
    ended = fiche.status != OutcomeStatus.PENDING
    fetched = or_(fiche.stage == FicheStage.FETCHED, fiche.status == OutcomeStatus.SUCCESSFUL)
    to_work = and_(fetched, fiche.recordings_count > 0)
    counts = (
        func.count(),
        func.count().filter(or_(ended, fiche.stage == FicheStage.FETCHED)),
        func.count().filter(to_work),
        func.count().filter(and_(to_work, fiche.transcribed)),
        func.count().filter(and_(to_work, ended, fiche.audits > 0)),
        func.count().filter(ended),
        func.coalesce(func.sum(fiche.audits), 0),
    )
    return RunProgress(
        *session.execute(select(*counts).where(fiche.run_id == run_id)).tuples().one()
    )


def reasons_of(session: Session, run_id: int) -> Mapping[str, Mapping[str, int]]:
    """The number of failed and ignored fiches by outcome and reason, the most frequent first."""
    found: dict[str, dict[str, int]] = {OutcomeStatus.FAILED: {}, OutcomeStatus.IGNORED: {}}
    for one in reasons_of_run(session, run_id):
        found[one.status][one.reason] = one.fiches
    return {status: reasons for status, reasons in found.items() if reasons}


def find_runs(
    session: Session,
    chosen: RunFilter,
    *,
    limit: int,
    offset: int,
) -> list[Run]:
    """Newest first."""
    query = select(RunRow).where(*_conditions(chosen)).order_by(RunRow.id.desc())
    return [as_run(row) for row in session.scalars(query.limit(limit).offset(offset))]


def _conditions(chosen: RunFilter) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if chosen.schedule_id is not None:
        conditions.append(RunRow.schedule_id == chosen.schedule_id)
    if chosen.status:
        conditions.append(RunRow.status.in_(chosen.status))
    return conditions


def runs_by_id(session: Session, run_ids: Collection[int]) -> dict[int, Run]:
    rows = session.scalars(select(RunRow).where(among(session, RunRow.id, run_ids)))
    return {row.id: as_run(row) for row in rows}


def logs_after(  # noqa: PLR0913  a level and a page
    session: Session,
    run_id: int,
    after_id: int,
    least: str,
    *,
    limit: int | None = None,
    offset: int = 0,
    with_details: bool = True,
) -> list[LogEntry]:
    """The entries after the one with that id and with at least that level, oldest first."""
    levels = LOG_LEVELS[LOG_LEVELS.index(LogLevel(least)) :]
    wanted = (LogRow.run_id == run_id, LogRow.id > after_id, LogRow.level.in_(levels))
    query = select(LogRow).where(*wanted).order_by(LogRow.id).limit(limit).offset(offset)
    return [
        LogEntry(
            id=row.id,
            timestamp=row.timestamp,
            level=row.level,
            message=row.message,
            metadata=row.details if with_details else {},
        )
        for row in session.scalars(query)
    ]


def notifications_of_run(session: Session, run_id: int) -> list[RunNotification]:
    query = (
        select(NotificationRow).where(NotificationRow.run_id == run_id).order_by(NotificationRow.id)
    )
    return [
        RunNotification.model_validate(row, from_attributes=True) for row in session.scalars(query)
    ]


def runs_cancelled(session: Session, since: datetime, until: datetime) -> dict[int, str | None]:
    """Runs that were cancelled in that period, with the Dagster run of their last attempt."""
    cancelled = (RunRow.status == RunStatus.CANCELLED, RunRow.completed_at.between(since, until))
    found = select(RunRow.id, RunRow.dagster_run_id).where(*cancelled).order_by(RunRow.id)
    return dict(session.execute(found).tuples().all())


class RunDetails(Run):
    """A run without its outcomes, which have their own paginated list."""

    progress: RunProgress
    phases: Sequence[PhaseLength]
    reasons: Mapping[str, Mapping[str, int]]
    notifications: Sequence[RunNotification]


def run_details(session: Session, run_id: int) -> RunDetails:
    return RunDetails(
        **vars(get_run(session, run_id)),
        progress=progress_of(session, run_id),
        phases=time_by_phase(session, run_id),
        reasons=reasons_of(session, run_id),
        notifications=notifications_of_run(session, run_id),
    )


def run_detail(
    session: Session, run_id: int, *, first_logs: int, with_fiche_ids: bool = True
) -> dict[str, object]:
    """The run as the HTTP API shows it. Without fiche ids, for callers of limited reach: its
    selection and the details of its log may name fiches outside their reach."""
    details = run_details(session, run_id)
    row = session.get_one(RunRow, run_id)
    summary = row.result_summary or result_summary(details, outcomes(session, run_id))
    snapshot = row.config_snapshot
    if not with_fiche_ids:
        summary, snapshot = {}, {name: _without_ids(part) for name, part in snapshot.items()}
    logs = logs_after(session, run_id, 0, "debug", limit=first_logs, with_details=with_fiche_ids)
    return {
        **as_document(details),
        "configSnapshot": snapshot,
        "resultSummary": summary,
        "logs": [as_document(entry) for entry in logs],
    }


def _without_ids(part: object) -> object:
    if not isinstance(part, Mapping):
        return part
    selection = cast("Mapping[str, object]", part)
    return {name: value for name, value in selection.items() if name != "ficheIds"}


def result_summary(run: Run, fiches: Sequence[FicheOutcome]) -> dict[str, object]:
    """The outcomes of an active or ended run, in the format of the API."""
    summary: dict[str, list[object]] = {"successful": [], "failed": [], "ignored": []}
    for one in fiches:
        match one.status:
            case OutcomeStatus.SUCCESSFUL:
                summary["successful"].append(one.fiche_id)
            case OutcomeStatus.FAILED:
                summary["failed"].append({"ficheId": one.fiche_id, "error": one.error})
            case OutcomeStatus.IGNORED:
                ignored: dict[str, object] = {"ficheId": one.fiche_id, "reason": one.ignore_reason}
                if one.recordings_count is not None:
                    ignored["recordingsCount"] = one.recordings_count
                summary["ignored"].append(ignored)
            case OutcomeStatus.PENDING:
                pass
    return {**summary, "transcriptions": run.transcriptions_run, "audits": run.audits_run}


PAGE_SIZE = 500


def is_schedule_visible(session: Session, reach: Reach, schedule_id: int) -> bool:
    try:
        return is_visible(get_schedule(session, schedule_id), reach)
    except NotFoundError:
        return False


def schedules_within(
    session: Session, reach: Reach, *, include_inactive: bool, limit: int, offset: int
) -> list[Schedule]:
    """Newest first."""
    if reach.is_whole:
        return list_schedules(
            session, include_inactive=include_inactive, limit=limit, offset=offset
        )
    seen = (
        one
        for one in list_schedules(session, include_inactive=include_inactive)
        if is_visible(one, reach)
    )
    return list(islice(seen, offset, offset + limit))


def is_run_visible(session: Session, reach: Reach, run_id: int) -> bool:
    found = (
        session.execute(_runs_with_schedules().where(RunRow.id == run_id)).tuples().one_or_none()
    )
    return found is not None and _is_run_in_reach(session, reach, *found)


def runs_within(
    session: Session,
    reach: Reach,
    chosen: RunFilter,
    *,
    limit: int,
    offset: int,
) -> list[Run]:
    """Newest first. SQL cannot decide whether a run is within a limited reach, so this function
    filters the runs page by page."""
    if reach.is_whole:
        return find_runs(session, chosen, limit=limit, offset=offset)
    query = _runs_with_schedules().where(*_conditions(chosen)).order_by(RunRow.id.desc())
    seen: list[Run] = []
    for row, schedule in _pages(session, query):
        if _is_run_in_reach(session, reach, row, schedule):
            seen.append(as_run(row))
        if len(seen) == offset + limit:
            break
    return seen[offset:]


def _runs_with_schedules() -> Select[tuple[RunRow, ScheduleRow]]:
    return select(RunRow, ScheduleRow).join(ScheduleRow, ScheduleRow.id == RunRow.schedule_id)


def _pages(
    session: Session, query: Select[tuple[RunRow, ScheduleRow]]
) -> Iterator[tuple[RunRow, ScheduleRow]]:
    last: int | None = None
    while True:
        page = query if last is None else query.where(RunRow.id < last)
        rows = session.execute(page.limit(PAGE_SIZE)).tuples().all()
        yield from rows
        if len(rows) < PAGE_SIZE:
            return
        last = rows[-1][0].id


def _is_run_in_reach(session: Session, reach: Reach, row: RunRow, scheduled: ScheduleRow) -> bool:
    schedule = as_schedule(scheduled)
    selection = requested_selection(row) or schedule.fiche_selection
    if not is_selection_visible(selection, schedule.created_by, reach):
        return False
    if reach.scope is not Scope.SELF:
        return True
    return set(selection.fiche_ids) == visible_fiches(session, reach, selection.fiche_ids)
