"""Queries of transcription runs and their tasks, one per recording: plan, claim, finish, count. All
times are the database's."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, TypeVar

from sqlalchemy import (
    ColumnElement,
    Float,
    Integer,
    Select,
    Text,
    UpdateBase,
    and_,
    bindparam,
    delete,
    func,
    literal_column,
    or_,
    select,
    tuple_,
    update,
)
from sqlalchemy.orm import Session, aliased

from automation_pipeline.fiches.tables import CallRecordingRow, FicheCacheRow
from automation_pipeline.storage.claims import RowClaims
from automation_pipeline.storage.statements import (
    advisory_lock,
    among,
    database_now,
    insert_into,
    insert_rows,
)
from automation_pipeline.transcription.models import (
    URGENCY,
    Chunk,
    DayTranscripts,
    PlannedRecording,
    TaskState,
    Transcript,
    TranscriptionPlan,
    TranscriptionPriority,
    TranscriptionRunRequest,
    TranscriptionStatus,
    TranscriptionSummary,
    is_transcribed,
)
from automation_pipeline.transcription.tables import (
    ChunkRow,
    TranscriptionRunRow,
    TranscriptionTaskRow,
)

Run, Task = TranscriptionRunRow, TranscriptionTaskRow
TASKS = RowClaims(Task, Task.id, owner=Task.owner, token=Task.token, until=Task.leased_until)
_RUNNING = Run.status == TranscriptionStatus.RUNNING
_UNFINISHED = (TaskState.WAITING, TaskState.WORKING)

Query = TypeVar("Query", bound=Select[Any])  # any columns


def plans_for(
    session: Session, requests: Sequence[TranscriptionRunRequest]
) -> dict[str, TranscriptionPlan]:
    """The plans by fiche, in the order of its calls. A fiche that is not mirrored has none."""
    renew_before = {request.fiche_id: request.renew_before for request in requests}
    call = CallRecordingRow
    query = (
        select(
            FicheCacheRow.fiche_id,
            call.id,
            call.call_id,
            call.recording_url,
            call.has_transcription,
            call.transcribed_at,
        )
        .select_from(FicheCacheRow)
        .outerjoin(  # one row without a call if the fiche has no recordings
            call, and_(call.fiche_cache_id == FicheCacheRow.id, call.vanished_at.is_(None))
        )
        .where(among(session, FicheCacheRow.fiche_id, renew_before))
        .order_by(call.start_time, call.call_id)
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
        fiche_id: TranscriptionPlan(totals[fiche_id], tuple(of_fiche))
        for fiche_id, of_fiche in targets.items()
    }


def start_runs(
    session: Session,
    plans: Sequence[tuple[TranscriptionRunRequest, TranscriptionPlan]],
    now: datetime,
) -> set[str]:
    """Record runs with their plans; a run without targets may get its plan later. Returns the ids of
    those that are new: a fiche has one live run."""
    rows = [
        {
            "id": request.run_id,
            "fiche_id": request.fiche_id,
            "priority": request.priority,
            "status": TranscriptionStatus.RUNNING,
            "dagster_run_id": request.dagster_run_id,
            **_plan_columns(request, plan),
            "processed": 0,
            "cached": 0,
            "failed": 0,
            "started_at": now,
            "touched_at": now,
        }
        for request, plan in plans
    ]
    return set(
        session.connection()
        .execute(insert_into(session, Run).on_conflict_do_nothing().returning(Run.id), rows)
        .scalars()
    )


def plan_run(session: Session, request: TranscriptionRunRequest, plan: TranscriptionPlan) -> bool:
    """Set the plan of a run that has none. False if another worker has set it, or the run has ended."""
    planned = session.scalar(
        update(Run)
        .where(Run.id == request.run_id, _RUNNING, Run.target_total == 0)
        .values(**_plan_columns(request, plan), touched_at=database_now())
        .returning(Run.id)
        .execution_options(synchronize_session=False)
    )
    return planned is not None


def _plan_columns(request: TranscriptionRunRequest, plan: TranscriptionPlan) -> dict[str, object]:
    return {
        "total_recordings": plan.total,
        "already_transcribed": plan.total - len(plan.targets),
        "target_total": len(plan.targets),
        "renew_before": request.renew_before,
    }


def add_tasks(
    session: Session,
    plans: Sequence[tuple[TranscriptionRunRequest, TranscriptionPlan]],
    now: datetime,
) -> None:
    rows = [
        {
            "run_id": request.run_id,
            "recording_id": target.recording_id,
            "fiche_id": request.fiche_id,
            "call_id": target.call_id,
            "recording_index": index,
            "urgency": URGENCY[request.priority],
            "state": TaskState.WAITING,
            "attempts": 0,
            "audio_failures": 0,
            "available_at": now,
            "token": 0,
        }
        for request, plan in plans
        for index, target in enumerate(plan.targets, start=1)
    ]
    insert_rows(session, Task, rows)


def raise_urgency(
    session: Session, run_ids: Sequence[str], priority: TranscriptionPriority
) -> None:
    """Make the waiting recordings of the runs at least as urgent as this priority."""
    session.execute(
        update(Task)
        .where(Task.run_id.in_(run_ids), Task.urgency > URGENCY[priority])
        .values(urgency=URGENCY[priority])
        .execution_options(synchronize_session=False)
    )


def find_runs(
    session: Session, *conditions: ColumnElement[bool], lock: bool = False
) -> list[TranscriptionSummary]:
    """The oldest first. With `lock`, only this transaction can change them until it ends."""
    query = (
        select(
            Run.id,
            Run.fiche_id,
            Run.status,
            Run.total_recordings,
            Run.already_transcribed,
            Run.target_total,
            Run.processed,
            Run.cached,
            Run.failed,
            Run.error,
            Run.started_at,
        )
        .where(*conditions)
        .order_by(Run.started_at)
    )
    rows = session.execute(query.with_for_update() if lock else query).tuples()
    return [
        TranscriptionSummary(run_id, fiche_id, TranscriptionStatus(status), *counts)
        for run_id, fiche_id, status, *counts in rows
    ]


def list_summaries(session: Session, run_ids: Sequence[str]) -> list[TranscriptionSummary]:
    return find_runs(session, among(session, Run.id, run_ids))


def active_runs(
    session: Session, requests: Sequence[TranscriptionRunRequest]
) -> dict[str, TranscriptionSummary]:
    """By the run ids of the requests: their own runs, or else the live runs of their fiches."""
    own = among(session, Run.id, [request.run_id for request in requests])
    fiches = among(session, Run.fiche_id, [request.fiche_id for request in requests])
    found = find_runs(session, or_(own, and_(fiches, _RUNNING)))
    by_id = {run.run_id: run for run in found}
    live = {run.fiche_id: run for run in found if run.status is TranscriptionStatus.RUNNING}
    active = {
        request.run_id: by_id.get(request.run_id) or live.get(request.fiche_id)
        for request in requests
    }
    return {run_id: run for run_id, run in active.items() if run is not None}


def last_runs_of(
    session: Session, fiche_ids: Sequence[str], since: datetime
) -> dict[str, TranscriptionSummary]:
    """The newest run of each fiche that was live at `since` or later."""
    live_since = or_(Run.finished_at.is_(None), Run.finished_at >= since)
    return {
        run.fiche_id: run for run in find_runs(session, Run.fiche_id.in_(fiche_ids), live_since)
    }


def live_runs(session: Session, fiche_ids: Sequence[str]) -> dict[str, str]:
    """The live runs, by fiche."""
    query = select(Run.fiche_id, Run.id).where(among(session, Run.fiche_id, fiche_ids), _RUNNING)
    return dict(session.execute(query).tuples().all())


def is_abandoned(silent_for_seconds: float) -> ColumnElement[bool]:
    """A condition on runs: they have had no heartbeat for that long."""
    return and_(_RUNNING, Run.touched_at <= database_now(-silent_for_seconds))


_COUNT = (
    update(Run)
    .where(Run.id == bindparam("run"))
    .values(
        processed=Run.processed + bindparam("ended", type_=Integer()),
        cached=Run.cached + bindparam("known", type_=Integer()),
        failed=Run.failed + bindparam("lost", type_=Integer()),
        touched_at=bindparam("at"),
    )
)


def count_recordings(
    session: Session, ended: Mapping[str, Counter[TaskState]], now: datetime
) -> list[TranscriptionSummary]:
    """Add ended recordings to the counters of their runs, and return the runs. Locks the rows, in the
    order of their ids."""
    more = [
        {
            "run": run_id,
            "at": now,
            "ended": states.total(),
            "known": states[TaskState.CACHED],
            "lost": states[TaskState.FAILED],
        }
        for run_id, states in sorted(ended.items())
    ]
    session.connection().execute(_COUNT, more)
    return find_runs(session, among(session, Run.id, ended))


def any_running(session: Session, run_ids: Sequence[str]) -> bool:
    return (
        session.scalar(select(Run.id).where(among(session, Run.id, run_ids), _RUNNING).limit(1))
        is not None
    )


def touch_runs(session: Session, run_ids: Sequence[str]) -> None:
    """Record a heartbeat of these runs."""
    session.execute(
        update(Run)
        .where(among(session, Run.id, run_ids), _RUNNING)
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
        update(Run)
        .where(among(session, Run.id, run_ids))
        .values(status=status, error=error, finished_at=database_now(), touched_at=database_now())
        .execution_options(synchronize_session=False)
    )


def failed_recordings(session: Session, run_ids: Sequence[str]) -> dict[str, list[tuple[str, str]]]:
    """By run, the failed recordings with their reasons, in the order of the calls."""
    query = (
        select(Task.run_id, Task.call_id, func.coalesce(Task.error, "unknown"))
        .where(among(session, Task.run_id, run_ids), Task.state == TaskState.FAILED)
        .order_by(Task.recording_index)
    )
    failed: dict[str, list[tuple[str, str]]] = {run_id: [] for run_id in run_ids}
    for run_id, call_id, reason in session.execute(query).tuples():
        failed[run_id].append((call_id, reason))
    return failed


@dataclass(frozen=True)
class RecordingClaim:
    """The right to work on one recording, until another worker has a higher token. `transcribed_at`
    and `renew_before` say whether its transcript, if it has one, is kept."""

    task_id: int
    token: int
    run_id: str
    fiche_id: str
    call_id: str
    recording_index: int
    target_total: int
    attempts: int
    audio_failures: int
    recording_id: int
    url: str
    duration_seconds: int
    has_transcription: bool
    transcribed_at: datetime | None
    renew_before: datetime | None


# The exact expression of the index of live tasks; with another one SQLite scans the table.
_IS_LIVE = Task.state.in_([literal_column(f"'{state}'") for state in _UNFINISHED])


def _build_claim() -> UpdateBase:
    other = aliased(Task)
    working = (
        select(func.count())
        .where(
            other.fiche_id == Task.fiche_id,
            other.state == TaskState.WORKING,
            other.leased_until > database_now(),
        )
        .correlate(Task)
        .scalar_subquery()
        .label("working")
    )
    is_waiting = and_(Task.state == TaskState.WAITING, Task.available_at <= database_now())
    is_left = and_(Task.state == TaskState.WORKING, TASKS.is_free())
    per_fiche = bindparam("per_fiche", type_=Integer())
    free = (
        select(Task.id, Task.urgency, Task.fiche_id, working)
        .where(_IS_LIVE, or_(is_waiting, is_left), working < per_fiche)
        .order_by(Task.urgency, Task.id)
        .limit(bindparam("limit", type_=Integer()))
        .cte("free")
    )
    nth = func.row_number().over(partition_by=free.c.fiche_id, order_by=(free.c.urgency, free.c.id))
    numbered = select(free.c.id, (free.c.working + nth).label("nth")).subquery()
    claimed = TASKS.by(bindparam("by", type_=Text()), bindparam("seconds", type_=Float(53)))
    return (
        update(Task)
        .where(Task.id.in_(select(numbered.c.id).where(numbered.c.nth <= per_fiche)))
        .values(state=TaskState.WORKING, **claimed)
        .returning(Task.id)
    )


_CLAIM = _build_claim()


def claim_next(
    session: Session, owner: str, limit: int, *, lease_seconds: float, per_fiche: int
) -> list[RecordingClaim]:
    """Claim up to `limit` free recordings of any run, by urgency, then age, and at most `per_fiche` of one
    fiche at a time. Claims are serialised, so that concurrent workers do not exceed that limit."""
    advisory_lock(session, "transcription-claims")
    wanted = {"limit": limit, "per_fiche": per_fiche, "by": owner, "seconds": lease_seconds}
    task_ids = list(session.connection().execute(_CLAIM, wanted).scalars())
    if not task_ids:
        return []
    query = (
        select(
            Task.id,
            Task.token,
            Task.run_id,
            Task.fiche_id,
            Task.call_id,
            Task.recording_index,
            Run.target_total,
            Task.attempts,
            Task.audio_failures,
            Task.recording_id,
            CallRecordingRow.recording_url,
            CallRecordingRow.duration_seconds,
            CallRecordingRow.has_transcription,
            CallRecordingRow.transcribed_at,
            Run.renew_before,
        )
        .join(Run, Run.id == Task.run_id)
        .join(CallRecordingRow, CallRecordingRow.id == Task.recording_id)
        .where(Task.id.in_(task_ids))
        .order_by(Task.urgency, Task.id)
    )
    return [RecordingClaim(*row) for row in session.execute(query).tuples()]


def finish_tasks(
    session: Session,
    claims: Sequence[RecordingClaim],
    state: TaskState,
    error: str | None = None,
    **changes: object,
) -> set[int]:
    """End the claims, with further changes of the tasks. Returns the tasks that no other worker has
    claimed since: a claim that has expired counts as long as none has a higher token."""
    finished_at = None if state is TaskState.WAITING else database_now()
    ended = (
        update(Task)
        .where(
            Task.id.in_([claim.task_id for claim in claims]),
            tuple_(Task.id, Task.token).in_([(claim.task_id, claim.token) for claim in claims]),
            Task.state == TaskState.WORKING,
        )
        .values(state=state, error=error, leased_until=None, finished_at=finished_at, **changes)
        .returning(Task.id)
        .execution_options(synchronize_session=False)
    )
    return set(session.scalars(ended))


def fail_waiting_tasks(
    session: Session, run_id: str, call_ids: Sequence[str] | None, error: str
) -> list[tuple[str, int]]:
    """Fail the unfinished tasks of the run, or those of `call_ids`. Returns their calls and indexes."""
    chosen = [] if call_ids is None else [Task.call_id.in_(call_ids)]
    failed = session.execute(
        update(Task)
        .where(Task.run_id == run_id, Task.state.in_(_UNFINISHED), *chosen)
        .values(
            state=TaskState.FAILED,
            error=error,
            finished_at=database_now(),
            owner=None,
            leased_until=None,
        )
        .returning(Task.call_id, Task.recording_index)
        .execution_options(synchronize_session=False)
    ).tuples()
    return sorted(failed, key=lambda task: task[1])


_UPDATE_RECORDING = (
    update(CallRecordingRow)
    .where(CallRecordingRow.id == bindparam("of_recording"))
    .values(
        has_transcription=True,
        transcription_id=bindparam("provider_id"),
        transcription_text=bindparam("transcript_text"),
        transcription_language_code=bindparam("language"),
        transcription_language_probability=bindparam("probability"),
        transcribed_at=database_now(),
    )
)


def save_transcripts(
    session: Session, transcripts: Mapping[int, tuple[Transcript, Sequence[Chunk]]]
) -> None:
    """Save transcripts by recording, in place of earlier ones. An empty transcript has no chunks."""
    if not transcripts:
        return
    connection = session.connection()
    connection.execute(delete(ChunkRow).where(ChunkRow.recording_id.in_(list(transcripts))))
    chunks = [
        {
            "recording_id": recording_id,
            "chunk_index": chunk.index,
            "start_timestamp": chunk.start,
            "end_timestamp": chunk.end,
            "message_count": chunk.message_count,
            "speakers": list(chunk.speakers),
            "full_text": chunk.full_text,
        }
        for recording_id, (_, of_recording) in transcripts.items()
        for chunk in of_recording
    ]
    insert_rows(session, ChunkRow, chunks)
    recordings = [
        {
            "of_recording": recording_id,
            "provider_id": transcript.transcription_id,
            "transcript_text": transcript.text or None,
            "language": transcript.language_code,
            "probability": transcript.language_probability,
        }
        for recording_id, (transcript, _) in sorted(transcripts.items())
    ]
    connection.execute(_UPDATE_RECORDING, recordings)


def waiting_tasks(session: Session) -> int:
    return session.scalar(select(func.count()).where(Task.state == TaskState.WAITING)) or 0


def _of_day(query: Query, day: date) -> Query:
    return (
        query.select_from(CallRecordingRow)
        .join(FicheCacheRow, FicheCacheRow.id == CallRecordingRow.fiche_cache_id)
        .where(FicheCacheRow.sales_date == day.isoformat(), CallRecordingRow.vanished_at.is_(None))
    )


def fiches_to_transcribe(session: Session, day: date) -> list[str]:
    """Fiches with a recording that has audio and no transcript."""
    query = (
        _of_day(select(FicheCacheRow.fiche_id), day)
        .where(CallRecordingRow.has_transcription.is_(False), CallRecordingRow.recording_url != "")
        .distinct()
        .order_by(FicheCacheRow.fiche_id)
    )
    return list(session.scalars(query))


def transcripts_of_day(session: Session, day: date) -> DayTranscripts:
    """The failures are the last errors of the recordings that lack a transcript."""
    is_done = CallRecordingRow.has_transcription
    seconds = func.coalesce(func.sum(CallRecordingRow.duration_seconds).filter(is_done), 0)
    counts = _of_day(select(func.count(), func.count().filter(is_done), seconds), day)
    recordings, transcribed, length = session.execute(counts).tuples().one()
    last = (
        select(func.max(Task.id)).where(Task.state == TaskState.FAILED).group_by(Task.recording_id)
    )
    errors = (
        _of_day(select(func.coalesce(Task.error, "unknown"), func.count()), day)
        .join(Task, Task.recording_id == CallRecordingRow.id)
        .where(is_done.is_(False), Task.id.in_(last))
        .group_by(Task.error)
    )
    failures = dict(session.execute(errors).tuples().all())
    return DayTranscripts(recordings, transcribed, round(float(length) / 60, 1), failures)
