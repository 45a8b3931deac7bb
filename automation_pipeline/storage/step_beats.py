"""Heartbeats of Dagster runs, and of their steps that work on other hosts."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import delete, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from automation_pipeline.storage.bulk import insert_into
from automation_pipeline.storage.instants import database_now
from automation_pipeline.storage.metadata import Table
from automation_pipeline.storage.types import UtcDateTime

# The step key of the process that executes a run, or waits for its steps: a run whose steps are queued is not lost.
RUN_WORKER = ""


class StepBeatRow(Table):
    """A step at work. Whoever ends it removes the row; what is left in it and silent was lost with its worker."""

    __tablename__ = "step_beats"

    dagster_run_id: Mapped[str] = mapped_column(primary_key=True)
    step_key: Mapped[str] = mapped_column(primary_key=True)
    worker: Mapped[str]
    beat_at: Mapped[datetime] = mapped_column(UtcDateTime)


@dataclass(frozen=True)
class StepBeat:
    dagster_run_id: str
    step_key: str
    worker: str
    beat_at: datetime
    now: datetime


def beat_step(session: Session, dagster_run_id: str, step_key: str, worker: str) -> None:
    key, changes = (
        {"dagster_run_id": dagster_run_id, "step_key": step_key},
        {"worker": worker, "beat_at": database_now()},
    )
    beat = insert_into(session, StepBeatRow).values(**key, **changes)
    session.execute(beat.on_conflict_do_update(index_elements=["dagster_run_id", "step_key"], set_=changes))


def end_step(session: Session, dagster_run_id: str, step_key: str, worker: str) -> None:
    """A copy of the step that has been begun elsewhere meanwhile keeps its row."""
    mine = (
        StepBeatRow.dagster_run_id == dagster_run_id,
        StepBeatRow.step_key == step_key,
        StepBeatRow.worker == worker,
    )
    session.execute(delete(StepBeatRow).where(*mine))


def forget_steps(session: Session, dagster_run_id: str) -> None:
    session.execute(delete(StepBeatRow).where(StepBeatRow.dagster_run_id == dagster_run_id))


def beats(session: Session, dagster_run_id: str | None = None) -> list[StepBeat]:
    """Of the run's steps at work, or of everybody's."""
    query = select(
        StepBeatRow.dagster_run_id, StepBeatRow.step_key, StepBeatRow.worker, StepBeatRow.beat_at, database_now()
    ).order_by(StepBeatRow.beat_at)
    if dagster_run_id is not None:
        query = query.where(StepBeatRow.dagster_run_id == dagster_run_id)
    return [StepBeat(*row) for row in session.execute(query).tuples()]
