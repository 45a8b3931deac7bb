"""Queries of transcription runs: at most one live run per fiche, and its counters."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy import Integer, Row, and_, bindparam, func, or_, select, update
from sqlalchemy.orm import Session

from automation_pipeline.fiches.tables import CallRecordingRow, FicheCacheRow
from automation_pipeline.storage.statements import among, database_now, insert_into, insert_rows
from automation_pipeline.transcription.models import (
    URGENCY,
    EndedRecordings,
    PlannedRecording,
    PlannedRun,
    TaskState,
    TranscriptionPlan,
    TranscriptionPriority,
    TranscriptionRunRequest,
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
_RUNNING = TranscriptionRunRow.status == TranscriptionStatus.RUNNING
_COUNT = (
    update(TranscriptionRunRow)
    .where(TranscriptionRunRow.id == bindparam("run"))
    .values(
        processed=TranscriptionRunRow.processed + bindparam("ended", type_=Integer()),
        cached=TranscriptionRunRow.cached + bindparam("known", type_=Integer()),
        failed=TranscriptionRunRow.failed + bindparam("lost", type_=Integer()),
        touched_at=bindparam("at"),
    )
)
NO_PLAN = TranscriptionPlan(total=0, already_transcribed=0, targets=())


def plans_for(
    session: Session, requests: Sequence[TranscriptionRunRequest]
) -> dict[str, TranscriptionPlan]:
    """The plans by fiche, in the order of its calls. A fiche that is not mirrored has none."""
    renew_before = {request.fiche_id: request.renew_before for request in requests}
    query = (
        select(
            FicheCacheRow.fiche_id,
            CallRecordingRow.id,
            CallRecordingRow.call_id,
            CallRecordingRow.recording_url,
            CallRecordingRow.has_transcription,
            CallRecordingRow.transcribed_at,
        )
        .select_from(FicheCacheRow)
        .outerjoin(  # one row without a call if the fiche has no recordings
            CallRecordingRow,
            (CallRecordingRow.fiche_cache_id == FicheCacheRow.id)
            & CallRecordingRow.vanished_at.is_(None),
        )
        .where(among(session, FicheCacheRow.fiche_id, renew_before))
        .order_by(CallRecordingRow.start_time, CallRecordingRow.call_id)
    )
    totals: Counter[str] = Counter()
    targets: dict[str, list[PlannedRecording]] = {}
    for fiche_id, row_id, call_id, url, is_done, at in session.execute(query).tuples():
        of_fiche = targets.setdefault(fiche_id, [])
        if not row_id:
            continue
        totals[fiche_id] += 1
        if not is_transcribed(is_done, at, renew_before[fiche_id]):
            of_fiche.append(PlannedRecording(row_id, call_id, url))
    return {
        fiche_id: TranscriptionPlan(
            total=totals[fiche_id],
            already_transcribed=totals[fiche_id] - len(of_fiche),
            targets=tuple(of_fiche),
            renew_before=renew_before[fiche_id],
        )
        for fiche_id, of_fiche in targets.items()
    }


def start_runs(
    session: Session,
    plans: Sequence[tuple[TranscriptionRunRequest, TranscriptionPlan]],
    now: datetime,
) -> set[str]:
    """Record runs with their plans, or with `NO_PLAN` until they have one. Returns the ids of those
    that are new: a fiche has one live run."""
    rows = [
        {
            "id": request.run_id,
            "fiche_id": request.fiche_id,
            "priority": request.priority,
            "status": TranscriptionStatus.RUNNING,
            "dagster_run_id": request.dagster_run_id,
            "total_recordings": plan.total,
            "already_transcribed": plan.already_transcribed,
            "target_total": len(plan.targets),
            "processed": 0,
            "cached": 0,
            "failed": 0,
            "renew_before": plan.renew_before,
            "started_at": now,
            "touched_at": now,
        }
        for request, plan in plans
    ]
    insert = insert_into(session, TranscriptionRunRow).on_conflict_do_nothing()
    return set(
        session.connection().execute(insert.returning(TranscriptionRunRow.id), rows).scalars()
    )


def plan_run(session: Session, run_id: str, plan: TranscriptionPlan) -> bool:
    """Set the plan of a run that has none. False if another worker has set it, or the run has ended."""
    planned = session.scalar(
        update(TranscriptionRunRow)
        .where(TranscriptionRunRow.id == run_id, _RUNNING, TranscriptionRunRow.target_total == 0)
        .values(
            total_recordings=plan.total,
            already_transcribed=plan.already_transcribed,
            target_total=len(plan.targets),
            renew_before=plan.renew_before,
            touched_at=database_now(),
        )
        .returning(TranscriptionRunRow.id)
        .execution_options(synchronize_session=False)
    )
    return planned is not None


def add_tasks(session: Session, runs: Sequence[PlannedRun], now: datetime) -> None:
    rows = [
        {
            "run_id": run.run_id,
            "recording_id": target.recording_id,
            "fiche_id": run.request.fiche_id,
            "call_id": target.call_id,
            "recording_index": index,
            "urgency": URGENCY[run.request.priority],
            "state": TaskState.WAITING,
            "attempts": 0,
            "audio_failures": 0,
            "available_at": now,
            "token": 0,
        }
        for run in runs
        for index, target in enumerate(run.plan.targets, start=1)
    ]
    insert_rows(session, TranscriptionTaskRow, rows)


def raise_urgency(
    session: Session, run_ids: Sequence[str], priority: TranscriptionPriority
) -> None:
    """Make the waiting recordings of the runs at least as urgent as this priority."""
    session.execute(
        update(TranscriptionTaskRow)
        .where(
            TranscriptionTaskRow.run_id.in_(run_ids),
            TranscriptionTaskRow.urgency > URGENCY[priority],
        )
        .values(urgency=URGENCY[priority])
        .execution_options(synchronize_session=False)
    )


def find_summary(session: Session, run_id: str) -> TranscriptionSummary | None:
    return next(iter(list_summaries(session, [run_id])), None)


def list_summaries(session: Session, run_ids: Sequence[str]) -> list[TranscriptionSummary]:
    rows = session.execute(select(*_SUMMARY).where(among(session, TranscriptionRunRow.id, run_ids)))
    return [summary_from_row(row) for row in rows]


def active_runs(
    session: Session, requests: Sequence[TranscriptionRunRequest]
) -> dict[str, TranscriptionSummary]:
    """By the run ids of the requests: their own runs, or else the live runs of their fiches."""
    own = among(session, TranscriptionRunRow.id, [request.run_id for request in requests])
    fiches = among(
        session, TranscriptionRunRow.fiche_id, [request.fiche_id for request in requests]
    )
    rows = session.execute(select(*_SUMMARY).where(or_(own, and_(fiches, _RUNNING))))
    found = [summary_from_row(row) for row in rows]
    by_id = {run.run_id: run for run in found}
    live = {run.fiche_id: run for run in found if run.status is TranscriptionStatus.RUNNING}
    active = {
        request.run_id: by_id.get(request.run_id) or live.get(request.fiche_id)
        for request in requests
    }
    return {run_id: run for run_id, run in active.items() if run is not None}


def lock_run(session: Session, run_id: str) -> TranscriptionRunRow:
    """Lock the run's row until the transaction ends, so that one worker at a time changes it."""
    return session.scalars(
        select(TranscriptionRunRow).where(TranscriptionRunRow.id == run_id).with_for_update()
    ).one()


def count_recordings(
    session: Session, ended: Mapping[str, EndedRecordings], now: datetime
) -> list[tuple[TranscriptionSummary, datetime]]:
    """Add ended recordings to the counters of their runs. Returns the runs and their starts. Locks
    the rows, in the order of their ids."""
    more = [
        {"run": run_id, "at": now, "ended": n.processed, "known": n.cached, "lost": n.failed}
        for run_id, n in sorted(ended.items())
    ]
    session.connection().execute(_COUNT, more)
    counted = select(*_SUMMARY, TranscriptionRunRow.started_at).where(
        among(session, TranscriptionRunRow.id, ended)
    )
    return [(summary_from_row(row), row.started_at) for row in session.execute(counted)]


def any_running(session: Session, run_ids: Sequence[str]) -> bool:
    chosen = among(session, TranscriptionRunRow.id, run_ids)
    return (
        session.scalar(select(TranscriptionRunRow.id).where(chosen, _RUNNING).limit(1)) is not None
    )


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


def end_runs(
    session: Session,
    run_ids: Sequence[str],
    status: TranscriptionStatus,
    error: str | None = None,
) -> None:
    session.execute(
        update(TranscriptionRunRow)
        .where(among(session, TranscriptionRunRow.id, run_ids))
        .values(status=status, error=error, finished_at=database_now(), touched_at=database_now())
        .execution_options(synchronize_session=False)
    )


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
