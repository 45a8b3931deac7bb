"""Begin an attempt at a run: the first one creates or takes its row, a later one fences off those before it."""

from dataclasses import dataclass
from datetime import datetime

from automation_pipeline.automation.domain import events
from automation_pipeline.automation.domain.at_work import LOST_AFTER_SECONDS
from automation_pipeline.automation.domain.notes import run_note
from automation_pipeline.automation.domain.run import RUN_MACHINE, Phase, RunStatus, RunTicket, Trigger
from automation_pipeline.automation.domain.selection import FicheSelection
from automation_pipeline.automation.store.phases import note_phase
from automation_pipeline.automation.store.runs import (
    add_run,
    as_run,
    beat,
    last_run_of_root,
    lock_run,
    order_of,
    write_log,
)
from automation_pipeline.automation.store.schedules import (
    get_schedule,
    lock_for_new_run,
    mark_running,
    refuse_paused,
)
from automation_pipeline.automation.tables import RunRow
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.run_requests import mark_taken
from automation_pipeline.storage.transitions import Transition, record_transitions
from automation_pipeline.storage.workflow_logs import write_notes


@dataclass(frozen=True, kw_only=True)
class Opening:
    """What the launch said. Without a run id the run is found by its root, or made. `is_next`: the watchdog requested
    it in place of a lost launch. `is_repeat`: a person re-executes a Dagster run from its first step."""

    schedule_id: int
    dagster_run_id: str
    dagster_root_run_id: str
    worker: str
    is_next: bool = False
    is_repeat: bool = False
    run_id: int | None = None
    due_at: datetime | None = None
    override: FicheSelection | None = None
    lost_after_seconds: float = LOST_AFTER_SECONDS


def open_run(opening: Opening, *, database: Database, clock: Clock) -> RunTicket:
    """The ticket of the new attempt. The next attempt at a run that has ended after all gets the last one: nothing is
    left."""
    if opening.run_id is None:
        from automation_pipeline.automation.stages.reconcile_stale_runs import close_lost_runs  # noqa: PLC0415  by hand only

        close_lost_runs(opening.schedule_id, opening.lost_after_seconds, database=database, clock=clock)
    now = clock.now()
    with database.transaction() as session:
        row = _existing_run(session, opening, now)
        if row is not None and row.completed_at is not None:
            return RunTicket(row.id, row.attempt)
        if row is None:
            row = _new_run(session, opening, now)
        elif row.attempt == 0:  # a pause does not keep a run that has begun from being finished
            refuse_paused(get_schedule(session, row.schedule_id))
        ticket = _begin_attempt(session, row, opening, now)
        beat(session, ticket, opening.worker)
        mark_running(session, row.schedule_id, now if row.trigger == Trigger.RETRY else row.due_at or now)
        if row.request_key:
            mark_taken(session, row.request_key, opening.dagster_run_id)
    return ticket


def _existing_run(session: Session, opening: Opening, now: datetime) -> RunRow | None:
    if opening.run_id is None:
        row = last_run_of_root(session, opening.dagster_root_run_id)
        return None if row is None or row.completed_at is not None else row
    row = lock_run(session, opening.run_id)
    if row.schedule_id != opening.schedule_id:
        raise ConflictError(f"Run {row.id} belongs to schedule {row.schedule_id}, not {opening.schedule_id}.")
    if row.completed_at is not None and opening.is_repeat:
        return _repeat(session, row, now)
    if row.completed_at is not None and not opening.is_next:
        raise ConflictError(f"Run {row.id} has already ended ({row.status}): start a new one.")
    return row


def _repeat(session: Session, row: RunRow, now: datetime) -> RunRow:
    """A new run with the selection and the due time of one that has ended."""
    schedule, due_at = lock_for_new_run(session, row.schedule_id), row.due_at or row.started_at
    return add_run(session, schedule, Trigger.RETRY, now, due_at=due_at, override=order_of(row), retry_of=row.id)


def _new_run(session: Session, opening: Opening, now: datetime) -> RunRow:
    schedule = lock_for_new_run(session, opening.schedule_id)
    return add_run(session, schedule, Trigger.LAUNCHPAD, now, due_at=opening.due_at, override=opening.override)


def _begin_attempt(session: Session, row: RunRow, opening: Opening, now: datetime) -> RunTicket:
    if row.status == RunStatus.PENDING:
        RUN_MACHINE.move(RunStatus.PENDING, RunStatus.RUNNING)
        row.status = RunStatus.RUNNING
        record_transitions(
            session,
            [Transition(RUN_MACHINE.name, str(row.id), RunStatus.PENDING, RunStatus.RUNNING, opening.worker, now)],
        )
    row.attempt += 1
    row.began_at = row.began_at or now
    if row.attempt > 1:
        from automation_pipeline.automation.store.progress import ledger_progress  # noqa: PLC0415  after a loss only

        row.progress_mark = ledger_progress(session, row.id)
    row.phase = Phase.SELECTION
    row.dagster_run_id = opening.dagster_run_id
    row.dagster_root_run_id = opening.dagster_root_run_id
    message = "Automation run started" if row.attempt == 1 else f"Attempt {row.attempt} takes the run over"
    write_log(session, row.id, now, "info", message, {"worker": opening.worker, "dagsterRunId": row.dagster_run_id})
    session.flush()
    note_phase(session, row.id, row.attempt, Phase.SELECTION)
    run = as_run(row)
    enqueue(session, [events.started(run, now)])
    write_notes(session, run_note(run, f"START: attempt {row.attempt}", data={"worker": opening.worker}))
    return RunTicket(row.id, row.attempt)
