"""When attempts at runs entered their phases, by the database's clock, and what is measured of it."""

from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from automation_pipeline.automation.domain.phases import PhaseEntry, PhaseLength, phase_lengths
from automation_pipeline.automation.domain.run import Phase
from automation_pipeline.automation.tables import RunPhaseRow, RunRow
from automation_pipeline.storage.bulk import insert_into
from automation_pipeline.storage.instants import database_now, database_time
from automation_pipeline.storage.measures import Measure, add_measures


def note_phase(session: Session, run_id: int, attempt: int, phase: Phase) -> None:
    """Only the first time that the attempt enters it."""
    entry = {"run_id": run_id, "attempt": attempt, "phase": phase, "entered_at": database_now()}
    session.execute(insert_into(session, RunPhaseRow).values(**entry).on_conflict_do_nothing())


def first_entry(session: Session, run_id: int) -> datetime | None:
    """When the run's first attempt began, by the database's clock: the same for every attempt."""
    return session.scalar(select(func.min(RunPhaseRow.entered_at)).where(RunPhaseRow.run_id == run_id))


def seconds_since(session: Session, run_id: int, *phases: Phase) -> float:
    """How long ago the run first entered one of the phases, in whichever attempt: what their time budget has spent."""
    entered = select(func.min(RunPhaseRow.entered_at)).where(
        RunPhaseRow.run_id == run_id, RunPhaseRow.phase.in_(phases)
    )
    at = session.scalar(entered)
    return 0.0 if at is None else max((database_time(session) - at).total_seconds(), 0.0)


def time_by_phase(session: Session, run_id: int) -> list[PhaseLength]:
    """Of the run's last attempt, up to its end or to now."""
    query = (
        select(RunPhaseRow.phase, RunPhaseRow.entered_at)
        .join(RunRow, (RunRow.id == RunPhaseRow.run_id) & (RunRow.attempt == RunPhaseRow.attempt))
        .where(RunRow.id == run_id)
    )
    entries = {Phase(phase): entered_at for phase, entered_at in session.execute(query).tuples()}
    until = entries.get(Phase.FINALIZING) or database_time(session)
    return phase_lengths([PhaseEntry(*entry) for entry in entries.items()], until)


def measure_phases(session: Session, run_id: int) -> None:
    """Adds the last attempt to the measures of all runs. For the transaction that ends the run: once."""
    measures: list[Measure] = []
    for length in time_by_phase(session, run_id):
        labels = f'phase="{length.phase}"'
        measures += [
            Measure("phase_seconds_total", labels, length.seconds),
            Measure("phases_total", labels, 1),
        ]
    add_measures(session, measures)
