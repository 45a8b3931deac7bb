"""Queries of tasks, one per recording of a run: claim, extend, release, finish. All times are the
database's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Float,
    Integer,
    Row,
    Text,
    UpdateBase,
    and_,
    bindparam,
    func,
    literal_column,
    or_,
    select,
    tuple_,
    update,
)
from sqlalchemy.orm import Session, aliased

from automation_pipeline.fiches.tables import CallRecordingRow
from automation_pipeline.storage.claims import RowClaims
from automation_pipeline.storage.statements import database_now
from automation_pipeline.transcription.models import TaskState, is_transcribed
from automation_pipeline.transcription.tables import TranscriptionRunRow, TranscriptionTaskRow

Task = TranscriptionTaskRow
TASKS = RowClaims(Task, Task.id, owner=Task.owner, token=Task.token, until=Task.leased_until)

CLAIM_LOCK = 7_310_201_812


@dataclass(frozen=True)
class RecordingClaim:
    """The right to work on one recording, until another worker has a higher token."""

    task_id: int
    token: int
    owner: str
    run_id: str
    fiche_id: str
    call_id: str
    position: tuple[int, int]
    attempts: int
    audio_failures: int
    recording_id: int
    url: str
    duration_seconds: int
    has_transcription: bool


# The exact expression of the index of live tasks; with another one SQLite scans the table.
_IS_LIVE = Task.state.in_(
    [literal_column(f"'{state}'") for state in (TaskState.WAITING, TaskState.WORKING)]
)


def _is_free() -> ColumnElement[bool]:
    waiting = and_(Task.state == TaskState.WAITING, Task.available_at <= database_now())
    abandoned = and_(Task.state == TaskState.WORKING, TASKS.is_free())
    return and_(_IS_LIVE, or_(waiting, abandoned))


def _working_on_same_fiche() -> ColumnElement[int]:
    other = aliased(Task)
    return (
        select(func.count())
        .where(
            other.fiche_id == Task.fiche_id,
            other.state == TaskState.WORKING,
            other.leased_until > database_now(),
        )
        .correlate(Task)
        .scalar_subquery()
    )


def _build_claim() -> UpdateBase:
    working = _working_on_same_fiche().label("working")
    per_fiche = bindparam("per_fiche", type_=Integer())
    free = (
        select(Task.id, Task.urgency, Task.fiche_id, working)
        .where(_is_free(), working < per_fiche)
        .order_by(Task.urgency, Task.id)
        .limit(bindparam("most", type_=Integer()))
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
    session: Session, owner: str, most: int, *, lease_seconds: float, per_fiche: int
) -> list[RecordingClaim]:
    """Claim up to `most` free recordings of any run, by urgency, then age, and at most `per_fiche` of one
    fiche at a time."""
    lock_claiming(session)
    wanted = {"most": most, "per_fiche": per_fiche, "by": owner, "seconds": lease_seconds}
    return _claims(session, list(session.connection().execute(_CLAIM, wanted).scalars()))


def extend_claims(session: Session, owner: str, lease_seconds: float) -> None:
    """Extend every claim that the owner still holds."""
    session.execute(
        update(Task)
        .where(Task.owner == owner, Task.state == TaskState.WORKING, TASKS.is_held())
        .values(leased_until=database_now(lease_seconds))
        .execution_options(synchronize_session=False)
    )


def runs_worked_on(session: Session, owner: str) -> list[str]:
    """The runs of the recordings that this owner has claimed."""
    held = (Task.owner == owner, Task.state == TaskState.WORKING)
    return list(session.scalars(select(Task.run_id).where(*held).distinct()))


def begin_attempts(session: Session, claims: Sequence[RecordingClaim]) -> set[int]:
    """Count one provider call per claim, right before the calls are made. Returns the tasks whose
    claims are still held."""
    held = [(claim.task_id, claim.token) for claim in claims]
    return {task_id for task_id, _ in TASKS.change(session, held, attempts=Task.attempts + 1)}


def release_for_retry(
    session: Session, claim: RecordingClaim, after: timedelta, error: str, *, of_audio: bool
) -> bool:
    """Release the claim; the recording is free after the wait. Audio failures are counted
    separately from provider calls."""
    changes = {
        "available_at": database_now(after.total_seconds()),
        "audio_failures": Task.audio_failures + int(of_audio),
        "owner": None,
    }
    return bool(_end_claims(session, [claim], TaskState.WAITING, error, changes))


def finish_tasks(
    session: Session, claims: Sequence[RecordingClaim], state: TaskState, error: str | None = None
) -> set[int]:
    """End the tasks. Returns those that no other worker has claimed since."""
    return _end_claims(session, claims, state, error, {"finished_at": database_now()})


def _end_claims(
    session: Session,
    claims: Sequence[RecordingClaim],
    state: TaskState,
    error: str | None,
    changes: Mapping[str, object],
) -> set[int]:
    """A claim that has expired counts as long as no other worker has a higher token."""
    ended = (
        update(Task)
        .where(
            Task.id.in_([claim.task_id for claim in claims]),
            tuple_(Task.id, Task.token).in_([(claim.task_id, claim.token) for claim in claims]),
            Task.state == TaskState.WORKING,
        )
        .values(state=state, error=error, leased_until=None, **changes)
        .returning(Task.id)
        .execution_options(synchronize_session=False)
    )
    return set(session.scalars(ended))


def fail_waiting_tasks(
    session: Session, run_id: str, call_ids: Sequence[str] | None, error: str
) -> list[tuple[str, int]]:
    """Fail the unfinished tasks of the run, or those of `call_ids`. Returns their calls and indexes."""
    unended = Task.state.in_((TaskState.WAITING, TaskState.WORKING))
    chosen = [] if call_ids is None else [Task.call_id.in_(call_ids)]
    failed = session.execute(
        update(Task)
        .where(Task.run_id == run_id, unended, *chosen)
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


def lock_claiming(session: Session) -> None:
    """Serialise claims, so that concurrent workers do not exceed the limit per fiche. SQLite serialises
    writes anyway."""
    if session.get_bind().dialect.name == "postgresql":
        session.execute(select(func.pg_advisory_xact_lock(CLAIM_LOCK)))


def _claims(session: Session, task_ids: Sequence[int]) -> list[RecordingClaim]:
    if not task_ids:
        return []
    query = (
        select(
            Task.id,
            Task.token,
            Task.owner,
            Task.run_id,
            Task.fiche_id,
            Task.call_id,
            Task.recording_index,
            Task.attempts,
            Task.audio_failures,
            Task.recording_id,
            TranscriptionRunRow.target_total,
            TranscriptionRunRow.renew_before,
            CallRecordingRow.recording_url,
            CallRecordingRow.duration_seconds,
            CallRecordingRow.has_transcription,
            CallRecordingRow.transcribed_at,
        )
        .join(TranscriptionRunRow, TranscriptionRunRow.id == Task.run_id)
        .join(CallRecordingRow, CallRecordingRow.id == Task.recording_id)
        .where(Task.id.in_(task_ids))
        .order_by(Task.urgency, Task.id)
    )
    return [_claim_from_row(row) for row in session.execute(query)]


def _claim_from_row(row: Row[Any]) -> RecordingClaim:
    return RecordingClaim(
        task_id=row.id,
        token=row.token,
        owner=row.owner or "",
        run_id=row.run_id,
        fiche_id=row.fiche_id,
        call_id=row.call_id,
        position=(row.recording_index, row.target_total),
        attempts=row.attempts,
        audio_failures=row.audio_failures,
        recording_id=row.recording_id,
        url=row.recording_url,
        duration_seconds=row.duration_seconds,
        has_transcription=is_transcribed(
            row.has_transcription, row.transcribed_at, row.renew_before
        ),
    )


def waiting_tasks(session: Session) -> int:
    query = select(func.count()).where(Task.state == TaskState.WAITING)
    return session.scalar(query) or 0
