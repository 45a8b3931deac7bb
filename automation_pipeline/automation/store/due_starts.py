"""What due detection writes: runs with their requests, what became of each due time, and when to look again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import bindparam, update
from sqlalchemy.orm import Session

from automation_pipeline.automation.domain.due import NotRun
from automation_pipeline.automation.domain.run import RunStatus, Trigger
from automation_pipeline.automation.store.due import RUNNING, Candidate
from automation_pipeline.automation.tables import DueTimeRow, OccurrenceRow, RunRow, ScheduleRow
from automation_pipeline.storage.bulk import insert_into, upsert
from automation_pipeline.storage.run_requests import RunWish, file_requests

JOB = "automation_run"


@dataclass(frozen=True)
class Start:
    """One due time that is run."""

    candidate: Candidate
    due_at: datetime

    @property
    def schedule_id(self) -> int:
        return self.candidate.schedule.id

    @property
    def key(self) -> str:
        return f"automation-schedule-{self.schedule_id}-{round(self.due_at.timestamp() * 1000)}"


def start_runs(session: Session, starts: Sequence[Start], now: datetime) -> dict[Start, int]:
    """The ids of the runs: their rows, their requests and the marks on their schedules. None for a due time that was
    run before, whatever its schedule remembers."""
    if not starts:
        return {}
    insert = insert_into(session, RunRow).on_conflict_do_nothing(index_elements=["request_key"])
    table = RunRow.__table__
    inserted = session.execute(
        insert.returning(table.c.request_key, table.c.id), [_run(start, now) for start in starts]
    ).tuples()
    ids: dict[str, int] = dict(iter(inserted))
    started = {start: ids[start.key] for start in starts if start.key in ids}
    file_requests(session, [_wish(start, run_id) for start, run_id in started.items()], now)
    _mark_running(session, list(started))
    _record(session, [_occurrence(s.schedule_id, s.due_at, now, run_id=run_id) for s, run_id in started.items()])
    return started


def record_not_run(session: Session, not_run: Sequence[tuple[int, NotRun]], now: datetime) -> None:
    _record(session, [_occurrence(id_, entry.due_at, now, because=entry.because) for id_, entry in not_run])


def record_decided(session: Session, until: Mapping[int, datetime]) -> None:
    """By schedule, the last due time that is settled now."""
    if not until:
        return
    change = update(ScheduleRow).where(ScheduleRow.id == bindparam("decided")).values(last_due_at=bindparam("until"))
    session.connection().execute(change, [{"decided": id_, "until": due_at} for id_, due_at in until.items()])


def record_next_due(session: Session, changed: Sequence[tuple[Candidate, datetime]]) -> None:
    rows = [
        {"schedule_id": candidate.schedule.id, "next_due_at": due_at, "timing": candidate.timing}
        for candidate, due_at in changed
    ]
    upsert(session, DueTimeRow, rows, key=("schedule_id",), fields=("next_due_at", "timing"))


def _mark_running(session: Session, started: Sequence[Start]) -> None:
    if not started:
        return
    change = (
        update(ScheduleRow)
        .where(ScheduleRow.id == bindparam("started"))
        .values(last_run_status=RUNNING, last_run_at=bindparam("due_at"))
    )
    marks = [{"started": start.schedule_id, "due_at": start.due_at} for start in started]
    session.connection().execute(change, marks)


def _record(session: Session, rows: Sequence[Mapping[str, object]]) -> None:
    upsert(session, OccurrenceRow, rows, key=("schedule_id", "due_at"))


def _occurrence(
    schedule_id: int, due_at: datetime, now: datetime, *, run_id: int | None = None, because: str | None = None
) -> Mapping[str, object]:
    said = {"run_id": run_id, "not_run_because": because}
    return {"schedule_id": schedule_id, "due_at": due_at, "decided_at": now, **said}


def _run(start: Start, now: datetime) -> dict[str, object]:
    schedule = {"name": start.candidate.schedule.name, "scheduleType": start.candidate.schedule_type}
    return {
        "schedule_id": start.schedule_id,
        "status": RunStatus.PENDING,
        "trigger": Trigger.SCHEDULE,
        "due_at": start.due_at,
        "request_key": start.key,
        "started_at": now,
        "config_snapshot": {"schedule": schedule, "overrides": None, "due_at": start.due_at.isoformat()},
    }


def _wish(start: Start, run_id: int) -> RunWish:
    config = {"schedule_id": start.schedule_id, "run_id": run_id, "due_at": start.due_at.isoformat()}
    tags = {
        "automation/schedule_id": str(start.schedule_id),
        "automation/run_id": str(run_id),
        "automation/trigger": Trigger.SCHEDULE,
    }
    return RunWish(start.key, JOB, config, tags)
