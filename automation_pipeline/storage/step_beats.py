"""Signs of life of steps that work on other hosts than their run, and of the processes that wait for them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import delete, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from automation_pipeline.storage.bulk import Insert, insert_into
from automation_pipeline.storage.instants import database_now
from automation_pipeline.storage.metadata import Table
from automation_pipeline.storage.types import UtcDateTime

# The process that waits for a run's steps beats as well: a run whose steps stand in a queue is not dead.
RUN_WORKER = ""


class StepBeatRow(Table):
    """A step at work. Whoever ends it removes the row; what is left in it and silent was lost with its worker."""

    __tablename__ = "step_beats"

    dagster_run_id: Mapped[str] = mapped_column(primary_key=True)
    step_key: Mapped[str] = mapped_column(primary_key=True)
    worker: Mapped[str]
    # How often it was begun: a message comes again when the process that took it has died.
    begun: Mapped[int]
    beat_at: Mapped[datetime] = mapped_column(UtcDateTime)


@dataclass(frozen=True)
class StepBeat:
    dagster_run_id: str
    step_key: str
    worker: str
    beat_at: datetime
    now: datetime


def begin_step(session: Session, dagster_run_id: str, step_key: str, worker: str) -> bool:
    """False: somebody has begun it and not ended it."""
    begin = _row(session, dagster_run_id, step_key, worker).on_conflict_do_nothing().returning(StepBeatRow.begun)
    return session.execute(begin).scalar_one_or_none() is not None


def take_over_step(session: Session, dagster_run_id: str, step_key: str, worker: str) -> int:
    """How often the step has been begun and not ended, this time included."""
    taken = _update(_row(session, dagster_run_id, step_key, worker), worker, more=1).returning(StepBeatRow.begun)
    return session.execute(taken).scalar_one()


def beat_step(session: Session, dagster_run_id: str, step_key: str, worker: str) -> None:
    session.execute(_update(_row(session, dagster_run_id, step_key, worker), worker, more=0))


def _row(session: Session, dagster_run_id: str, step_key: str, worker: str) -> Insert:
    key = {"dagster_run_id": dagster_run_id, "step_key": step_key}
    return insert_into(session, StepBeatRow).values(**key, worker=worker, begun=1, beat_at=database_now())


def _update(row: Insert, worker: str, more: int) -> Insert:
    changes = {"begun": StepBeatRow.begun + more, "worker": worker, "beat_at": database_now()}
    return row.on_conflict_do_update(index_elements=["dagster_run_id", "step_key"], set_=changes)


def end_step(session: Session, dagster_run_id: str, step_key: str, worker: str) -> None:
    """A copy of the step that has been begun elsewhere meanwhile keeps its row."""
    mine = (
        StepBeatRow.dagster_run_id == dagster_run_id,
        StepBeatRow.step_key == step_key,
        StepBeatRow.worker == worker,
    )
    session.execute(delete(StepBeatRow).where(*mine))


def forget_steps(session: Session, dagster_run_id: str, step_keys: Sequence[str] | None = None) -> None:
    """All of the run's, or these."""
    query = delete(StepBeatRow).where(StepBeatRow.dagster_run_id == dagster_run_id)
    session.execute(query if step_keys is None else query.where(StepBeatRow.step_key.in_(step_keys)))


def beats(session: Session, dagster_run_id: str | None = None) -> list[StepBeat]:
    """Of the run's steps at work, or of everybody's."""
    query = select(
        StepBeatRow.dagster_run_id, StepBeatRow.step_key, StepBeatRow.worker, StepBeatRow.beat_at, database_now()
    ).order_by(StepBeatRow.beat_at)
    if dagster_run_id is not None:
        query = query.where(StepBeatRow.dagster_run_id == dagster_run_id)
    return [StepBeat(*row) for row in session.execute(query).tuples()]
