"""Queries of transcription runs: at most one live run per fiche, and its counters."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import (
    ColumnElement,
    Integer,
    Row,
    Select,
    UpdateBase,
    bindparam,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.orm import Session

from automation_pipeline.fiches.tables import CallRecordingRow, FicheCacheRow
from automation_pipeline.storage.clock import database_now
from automation_pipeline.storage.prepared import execute, execute_each
from automation_pipeline.storage.statements import among, among_given, dialects_insert
from automation_pipeline.storage.types import UtcDateTime
from automation_pipeline.transcription.models import (
    URGENCY,
    PlannedRecording,
    TaskState,
    TranscriptionPlan,
    TranscriptionPriority,
    TranscriptionStatus,
    TranscriptionSummary,
    is_transcribed,
)
from automation_pipeline.transcription.tables import TranscriptionRunRow, TranscriptionTaskRow

_SUMMARY = tuple(
    getattr(TranscriptionRunRow, name)
    for name in (
        "id", "fiche_id", "status", "total_recordings", "already_transcribed", "target_total", "processed", "cached",
        "failed", "error",
    )
)  # fmt: skip
_BY_ID = select(*_SUMMARY).where(TranscriptionRunRow.id == bindparam("run"))
_LIVE = select(TranscriptionRunRow.id).where(
    TranscriptionRunRow.fiche_id == bindparam("fiche"),
    TranscriptionRunRow.status == TranscriptionStatus.RUNNING,
)
# One row without a call if the fiche has no recordings.
_CALLS = (
    select(
        CallRecordingRow.id,
        CallRecordingRow.call_id,
        CallRecordingRow.recording_url,
        CallRecordingRow.has_transcription,
        CallRecordingRow.transcribed_at,
    )
    .select_from(FicheCacheRow)
    .outerjoin(
        CallRecordingRow,
        (CallRecordingRow.fiche_cache_id == FicheCacheRow.id)
        & CallRecordingRow.vanished_at.is_(None),
    )
    .where(FicheCacheRow.fiche_id == bindparam("fiche"))
    .order_by(CallRecordingRow.start_time, CallRecordingRow.call_id)
)
_ADD_TASKS = insert(TranscriptionTaskRow)
_END = (
    update(TranscriptionRunRow)
    .where(TranscriptionRunRow.id == bindparam("run"))
    .values(
        status=bindparam("then"),
        error=bindparam("why"),
        finished_at=database_now(),
        touched_at=database_now(),
    )
)
_PLAN = (
    update(TranscriptionRunRow)
    .where(
        TranscriptionRunRow.id == bindparam("run"),
        TranscriptionRunRow.status == TranscriptionStatus.RUNNING,
        TranscriptionRunRow.target_total == 0,
    )
    .values(
        total_recordings=bindparam("total"),
        already_transcribed=bindparam("already"),
        target_total=bindparam("targets"),
        renew_before=bindparam("renew", type_=UtcDateTime()),
        touched_at=database_now(),
    )
)
_COUNT = (
    update(TranscriptionRunRow)
    .where(TranscriptionRunRow.id == bindparam("run"))
    .values(
        processed=TranscriptionRunRow.processed + bindparam("ended", type_=Integer()),
        cached=TranscriptionRunRow.cached + bindparam("known", type_=Integer()),
        failed=TranscriptionRunRow.failed + bindparam("lost", type_=Integer()),
        touched_at=bindparam("at"),
    )
    .returning(*_SUMMARY, TranscriptionRunRow.started_at)
)


NO_PLAN = TranscriptionPlan(total=0, already_transcribed=0, targets=())


def plan_for(
    session: Session, fiche_id: str, renew_before: datetime | None = None
) -> TranscriptionPlan | None:
    """The plan for a fiche, in the order of its calls; None when the fiche is not mirrored."""
    rows = execute(session, _CALLS, {"fiche": fiche_id}).rows
    if not rows:
        return None
    recordings = [
        (PlannedRecording(row_id, call_id, url), is_transcribed(done, at, renew_before))
        for row_id, call_id, url, done, at in rows
        if row_id
    ]
    targets = tuple(recording for recording, done in recordings if not done)
    return TranscriptionPlan(
        total=len(recordings),
        already_transcribed=len(recordings) - len(targets),
        targets=targets,
        renew_before=renew_before,
    )


def start_run(
    session: Session,
    run_id: str,
    fiche_id: str,
    plan: TranscriptionPlan,
    priority: TranscriptionPriority,
    dagster_run_id: str | None,
) -> bool:
    """Record a run with its plan, or with `NO_PLAN` until it has one. False, and no change, if the fiche
    has a live run or this run exists."""
    row = {
        "id": run_id,
        "fiche_id": fiche_id,
        "priority": priority,
        "status": TranscriptionStatus.RUNNING,
        "dagster_run_id": dagster_run_id,
        "total_recordings": plan.total,
        "already_transcribed": plan.already_transcribed,
        "target_total": len(plan.targets),
        "processed": 0,
        "cached": 0,
        "failed": 0,
        "renew_before": plan.renew_before,
    }
    return execute(session, _insert_run, row).first() is not None


def plan_run(session: Session, run_id: str, plan: TranscriptionPlan) -> bool:
    """Set the plan of a run that has none. False if another worker has set it, or the run has ended."""
    counts = {
        "total": plan.total,
        "already": plan.already_transcribed,
        "targets": len(plan.targets),
    }
    return (
        execute(session, _PLAN, {"run": run_id, "renew": plan.renew_before, **counts}).changed == 1
    )


def _insert_run(postgres: bool) -> UpdateBase:
    given = (
        "id", "fiche_id", "priority", "status", "dagster_run_id", "total_recordings", "already_transcribed",
        "target_total", "processed", "cached", "failed", "renew_before",
    )  # fmt: skip
    values: dict[str, ColumnElement[object]] = {
        name: bindparam(name, type_=TranscriptionRunRow.__table__.c[name].type) for name in given
    }
    now = {"started_at": database_now(), "touched_at": database_now()}
    insert = dialects_insert(TranscriptionRunRow, postgres=postgres).values(**values, **now)
    return insert.on_conflict_do_nothing().returning(TranscriptionRunRow.id)


def add_tasks(
    session: Session,
    run_id: str,
    fiche_id: str,
    plan: TranscriptionPlan,
    priority: TranscriptionPriority,
    now: datetime,
) -> None:
    rows = [
        {
            "run_id": run_id,
            "recording_id": target.recording_id,
            "fiche_id": fiche_id,
            "call_id": target.call_id,
            "recording_index": index,
            "urgency": URGENCY[priority],
            "state": TaskState.WAITING,
            "attempts": 0,
            "audio_failures": 0,
            "available_at": now,
            "token": 0,
        }
        for index, target in enumerate(plan.targets, start=1)
    ]
    execute_each(session, _ADD_TASKS, rows)


def raise_urgency(session: Session, run_id: str, priority: TranscriptionPriority) -> None:
    """Make the waiting recordings of the run at least as urgent as this priority."""
    session.execute(
        update(TranscriptionTaskRow)
        .where(
            TranscriptionTaskRow.run_id == run_id, TranscriptionTaskRow.urgency > URGENCY[priority]
        )
        .values(urgency=URGENCY[priority])
        .execution_options(synchronize_session=False)
    )


def live_run_of(session: Session, fiche_id: str) -> str | None:
    return execute(session, _LIVE, {"fiche": fiche_id}).value()


def find_summary(session: Session, run_id: str) -> TranscriptionSummary | None:
    row = execute(session, _BY_ID, {"run": run_id}).first()
    return None if row is None else summary_from_row(row)


def list_summaries(session: Session, run_ids: Sequence[str]) -> list[TranscriptionSummary]:
    rows = session.scalars(
        select(TranscriptionRunRow).where(among(session, TranscriptionRunRow.id, run_ids))
    )
    return [summary_from_row(row) for row in rows]


def lock_run(session: Session, run_id: str) -> TranscriptionRunRow:
    """Lock the run's row until the transaction ends, so that one worker at a time changes it."""
    return session.scalars(
        select(TranscriptionRunRow).where(TranscriptionRunRow.id == run_id).with_for_update()
    ).one()


def count_recordings(
    session: Session, run_id: str, now: datetime, *, processed: int, cached: int, failed: int
) -> tuple[TranscriptionSummary, datetime]:
    """Add ended recordings to the counters. Returns the run and its start. Locks the row."""
    more = {"run": run_id, "at": now, "ended": processed, "known": cached, "lost": failed}
    row = execute(session, _COUNT, more).one()
    return summary_from_row(row), row.started_at


def any_running(session: Session, run_ids: Sequence[str]) -> bool:
    return bool(execute(session, _count_live, {"runs": run_ids}).value())


def _count_live(postgres: bool) -> Select[tuple[int]]:
    chosen = among_given(TranscriptionRunRow.id, "runs", postgres=postgres)
    live = TranscriptionRunRow.status == TranscriptionStatus.RUNNING
    return select(func.count()).select_from(TranscriptionRunRow).where(chosen, live)


def touch_runs(session: Session, run_ids: Sequence[str]) -> None:
    """Record a heartbeat of these runs."""
    session.execute(
        update(TranscriptionRunRow)
        .where(
            among(session, TranscriptionRunRow.id, run_ids),
            TranscriptionRunRow.status == TranscriptionStatus.RUNNING,
        )
        .values(touched_at=database_now())
        .execution_options(synchronize_session=False)
    )


def end_run(
    session: Session, run_id: str, status: TranscriptionStatus, error: str | None = None
) -> None:
    execute(session, _END, {"run": run_id, "then": status, "why": error})


def summary_from_row(row: TranscriptionRunRow | Row[tuple[object, ...]]) -> TranscriptionSummary:
    return TranscriptionSummary(
        run_id=row.id,
        fiche_id=row.fiche_id,
        status=TranscriptionStatus(row.status),
        total=row.total_recordings,
        already_transcribed=row.already_transcribed,
        target_total=row.target_total,
        processed=row.processed,
        cached=row.cached,
        failed=row.failed,
        error=row.error,
    )


def abandoned_runs(session: Session, silent_for_seconds: float) -> list[tuple[str, str]]:
    """The ids and fiches of running runs without a heartbeat for that long."""
    silent = TranscriptionRunRow.touched_at <= database_now(-silent_for_seconds)
    query = select(TranscriptionRunRow.id, TranscriptionRunRow.fiche_id)
    return list(
        session.execute(
            query.where(TranscriptionRunRow.status == TranscriptionStatus.RUNNING, silent)
        ).tuples()
    )


def is_abandoned(row: TranscriptionRunRow, now: datetime, silent_for_seconds: float) -> bool:
    """Check again after the row is locked."""
    return row.status == TranscriptionStatus.RUNNING and row.touched_at <= now - timedelta(
        seconds=silent_for_seconds
    )


def last_runs_of(
    session: Session, fiche_ids: Sequence[str], since: datetime
) -> dict[str, TranscriptionSummary]:
    """The newest run of each fiche that was live at `since` or later."""
    live_since = or_(
        TranscriptionRunRow.finished_at.is_(None), TranscriptionRunRow.finished_at >= since
    )
    rows = session.scalars(
        select(TranscriptionRunRow)
        .where(TranscriptionRunRow.fiche_id.in_(fiche_ids), live_since)
        .order_by(TranscriptionRunRow.started_at)
    )
    return {row.fiche_id: summary_from_row(row) for row in rows}


def failed_recordings(session: Session, run_id: str) -> list[tuple[str, str]]:
    """The failed recordings of a run with their reasons, in the order of the calls."""
    task = TranscriptionTaskRow
    query = (
        select(task.call_id, func.coalesce(task.error, "unknown"))
        .where(task.run_id == run_id, task.state == TaskState.FAILED)
        .order_by(task.recording_index)
    )
    return list(session.execute(query).tuples())
