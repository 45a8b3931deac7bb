"""Which schedules and runs are within somebody's reach. A run is judged by what it was about, not by what its schedule
has become since."""

from collections.abc import Iterator, Sequence
from itertools import islice

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from automation_pipeline.automation.domain.run import Run, RunStatus
from automation_pipeline.automation.domain.schedule import Schedule
from automation_pipeline.automation.domain.selection import FicheSelection
from automation_pipeline.automation.domain.visibility import is_selection_visible, is_visible
from automation_pipeline.automation.store.progress import runs_like
from automation_pipeline.automation.store.runs import as_run
from automation_pipeline.automation.store.schedules import as_schedule, get_schedule, list_schedules
from automation_pipeline.automation.tables import RunRow, ScheduleRow
from automation_pipeline.core.access import Reach, Scope
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.fiches.store.visibility import visible_fiches

AT_ONCE = 500


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
        return list_schedules(session, include_inactive=include_inactive, limit=limit, offset=offset)
    seen = (one for one in list_schedules(session, include_inactive=include_inactive) if is_visible(one, reach))
    return list(islice(seen, offset, offset + limit))


def is_run_visible(session: Session, reach: Reach, run_id: int) -> bool:
    found = session.execute(_runs().where(RunRow.id == run_id)).tuples().one_or_none()
    return found is not None and _is_in_reach(session, reach, *found)


def runs_within(
    session: Session,
    reach: Reach,
    *,
    schedule_id: int | None = None,
    statuses: Sequence[RunStatus] = (),
    limit: int,
    offset: int,
) -> list[Run]:
    """Newest first. What a run was about is not a question for SQL: those of limited reach look through all of them."""
    if reach.is_whole:
        return runs_like(session, schedule_id=schedule_id, statuses=statuses, limit=limit, offset=offset)
    query = _runs().order_by(RunRow.id.desc())
    if schedule_id is not None:
        query = query.where(RunRow.schedule_id == schedule_id)
    if statuses:
        query = query.where(RunRow.status.in_(statuses))
    seen: list[Run] = []
    for row, schedule in _all(session, query):
        if _is_in_reach(session, reach, row, schedule):
            seen.append(as_run(row))
        if len(seen) == offset + limit:
            break
    return seen[offset:]


def _runs() -> Select[tuple[RunRow, ScheduleRow]]:
    return select(RunRow, ScheduleRow).join(ScheduleRow, ScheduleRow.id == RunRow.schedule_id)


def _all(session: Session, query: Select[tuple[RunRow, ScheduleRow]]) -> Iterator[tuple[RunRow, ScheduleRow]]:
    last: int | None = None
    while True:
        page = query if last is None else query.where(RunRow.id < last)
        rows = session.execute(page.limit(AT_ONCE)).tuples().all()
        yield from rows
        if len(rows) < AT_ONCE:
            return
        last = rows[-1][0].id


def _is_in_reach(session: Session, reach: Reach, row: RunRow, scheduled: ScheduleRow) -> bool:
    schedule = as_schedule(scheduled)
    selection = _selection(row, schedule)
    if not is_selection_visible(selection, schedule.created_by, reach):
        return False
    if reach.scope is not Scope.SELF:
        return True
    return set(selection.fiche_ids) == visible_fiches(session, reach, selection.fiche_ids)


def _selection(row: RunRow, schedule: Schedule) -> FicheSelection:
    said = row.config_snapshot.get("overrides") or row.config_snapshot.get("selection")
    return schedule.fiche_selection if said is None else FicheSelection.model_validate(said)
