"""Queries over runs: opening, fencing, beating, ending, and what people ask about them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import cast

from pydantic import SecretStr
from sqlalchemy import and_, bindparam, func, or_, select, update
from sqlalchemy.orm import Session

from automation_pipeline.automation.domain.run import Phase, Run, RunStatus, RunTicket, Trigger
from automation_pipeline.automation.domain.run_options import options_document, with_options
from automation_pipeline.automation.domain.schedule import Schedule
from automation_pipeline.automation.domain.selection import FicheSelection
from automation_pipeline.automation.store.phases import first_entry, note_phase
from automation_pipeline.automation.store.schedules import schedule_of_run
from automation_pipeline.automation.tables import HeartbeatRow, LogRow, RunRow, ScheduleRow
from automation_pipeline.core.errors import NotFoundError, PermanentError
from automation_pipeline.core.masking import masked_document
from automation_pipeline.storage.bulk import among, insert_into
from automation_pipeline.storage.group_commit import known_throughout
from automation_pipeline.storage.instants import database_now
from automation_pipeline.storage.prepared import execute
from automation_pipeline.storage.run_requests import RunRequestRow
from automation_pipeline.storage.types import JsonObject

_FENCED = select(RunRow.attempt, RunRow.status).where(RunRow.id == bindparam("run")).with_for_update(read=True)


class StaleAttemptError(PermanentError):
    """A newer attempt works on the run, or it has ended: whatever this worker did is not wanted any more."""


@dataclass(frozen=True)
class WatchedRun:
    """A run that waits or works. `launch` counts the Dagster runs that its request has asked for."""

    run_id: int
    schedule_id: int
    attempt: int
    dagster_run_id: str | None
    last_sign_at: datetime
    now: datetime
    request_key: str | None
    request_state: str | None
    launch: int | None
    refused_because: str | None

    @property
    def silent_seconds(self) -> float:
        return (self.now - self.last_sign_at).total_seconds()


def add_run(  # noqa: PLR0913  what a run may be asked to be
    session: Session,
    schedule: Schedule,
    trigger: Trigger,
    now: datetime,
    *,
    due_at: datetime | None = None,
    override: FicheSelection | None = None,
    retry_of: int | None = None,
) -> RunRow:
    """A run that waits for its first attempt. The snapshot keeps what it was asked to do."""
    row = RunRow(
        schedule_id=schedule.id,
        status=RunStatus.PENDING,
        trigger=trigger,
        due_at=due_at,
        attempt=0,
        started_at=now,
        retry_of_run_id=retry_of,
        selected_fiches=0,
        config_snapshot={
            "schedule": {"name": schedule.name, "scheduleType": schedule.schedule_type},
            "overrides": override and override.model_dump(mode="json", by_alias=True),
            "due_at": due_at and due_at.isoformat(),
        },
    )
    session.add(row)
    session.flush()
    return row


def order_of(row: RunRow) -> FicheSelection | None:
    """The selection that was asked for, or taken from the schedule. None: nothing was selected yet, the schedule's
    selection holds."""
    said = row.config_snapshot.get("overrides") or row.config_snapshot.get("selection")
    return None if said is None else FicheSelection.model_validate(said)


def selection_of(session: Session, row: RunRow) -> FicheSelection:
    """What the run is about: its own override, or what its schedule said when it selected, or says now."""
    return order_of(row) or schedule_of_run(session, row.schedule_id).fiche_selection


@dataclass(frozen=True)
class Tries:
    """What a run is to do: its schedule and selection as it froze them, since when details count as fresh, and how
    often what fails is tried again."""

    schedule: Schedule
    selection: FicheSelection
    since: datetime
    # Transcripts from before the run, by the database's clock, where the schedule does not skip transcribed fiches.
    renew_before: datetime | None = None
    # Audit configurations, as they were when the run selected its fiches.
    configs: tuple[int, ...] = ()

    @property
    def retries(self) -> int:
        return self.schedule.max_retries if self.schedule.retry_failed else 0


def tries_of(session: Session, run_id: int) -> Tries:
    row = session.get_one(RunRow, run_id)
    schedule = with_options(schedule_of_run(session, row.schedule_id), row.config_snapshot.get("options"))
    renew_before = None if schedule.skip_if_transcribed else first_entry(session, run_id)
    frozen = cast("list[int] | None", row.config_snapshot.get("auditConfigs"))
    configs = audit_configs_of(session, schedule) if frozen is None else tuple(frozen)
    return Tries(schedule, selection_of(session, row), row.started_at, renew_before, configs)


def audit_configs_of(session: Session, schedule: Schedule) -> tuple[int, ...]:
    """Those that the schedule names, then the automatic ones, each once; none where it does not audit."""
    if not schedule.run_audits:
        return ()
    from automation_pipeline.audits.store.configs import automatic_configs  # noqa: PLC0415  a run starts without audits

    automatic = automatic_configs(session) if schedule.use_automatic_audits else []
    return tuple(dict.fromkeys([*schedule.specific_audit_configs, *(stored.id for stored in automatic)]))


def freeze_options(session: Session, row: RunRow) -> None:
    """From now on edits of the schedule and of the automatic configurations are for later runs."""
    schedule = schedule_of_run(session, row.schedule_id)
    row.config_snapshot = {
        **row.config_snapshot,
        "selection": selection_of(session, row).model_dump(mode="json", by_alias=True),
        "options": options_document(schedule),
        "auditConfigs": list(audit_configs_of(session, schedule)),
    }


def runs_by_key(session: Session, request_keys: Sequence[str]) -> dict[str, RunRow]:
    """Those of them that were filed."""
    rows = session.scalars(select(RunRow).where(among(session, RunRow.request_key, request_keys)))
    return {row.request_key: row for row in rows if row.request_key}


def external_key_of(session: Session, run_id: int) -> SecretStr | None:
    """The key of the CRM that the run's schedule has of its own."""
    key = session.scalar(
        select(ScheduleRow.external_api_key)
        .join(RunRow, RunRow.schedule_id == ScheduleRow.id)
        .where(RunRow.id == run_id)
    )
    return SecretStr(key) if key else None


def lock_run(session: Session, run_id: int) -> RunRow:
    """The row, held until the transaction ends."""
    row = session.scalar(select(RunRow).where(RunRow.id == run_id).with_for_update())
    if row is None:
        raise NotFoundError(f"Run {run_id} not found")
    return row


def last_run_of_root(session: Session, dagster_root_run_id: str) -> RunRow | None:
    """The newest row that this Dagster run or those it retries have worked on."""
    return session.scalar(
        select(RunRow)
        .where(RunRow.dagster_root_run_id == dagster_root_run_id)
        .order_by(RunRow.id.desc())
        .limit(1)
        .with_for_update()
    )


def has_ended(session: Session, ticket: RunTicket) -> bool:
    """The attempt was the last one, and its run is over."""
    row = session.get(RunRow, ticket.run_id)
    return row is not None and row.attempt == ticket.attempt and row.completed_at is not None


def hold_attempt(session: Session, ticket: RunTicket) -> None:
    """The run, fenced: no newer attempt can begin before this transaction ends."""
    known_throughout(session, (hold_attempt, ticket), lambda session: _hold(session, ticket))


def held_run(session: Session, ticket: RunTicket) -> RunRow:
    """The same, and its row."""
    hold_attempt(session, ticket)
    return session.get_one(RunRow, ticket.run_id, populate_existing=True)


def _hold(session: Session, ticket: RunTicket) -> None:
    row = execute(session, _FENCED, {"run": ticket.run_id}).first()
    if row is None or row.attempt != ticket.attempt or row.status != RunStatus.RUNNING:
        raise StaleAttemptError(f"Attempt {ticket.attempt} of run {ticket.run_id} is no longer the one at work.")


def enter_phase(session: Session, ticket: RunTicket, phase: Phase) -> None:
    entered = session.execute(
        update(RunRow)
        .where(RunRow.id == ticket.run_id, RunRow.attempt == ticket.attempt, RunRow.phase.is_distinct_from(phase))
        .values(phase=phase)
        .returning(RunRow.id)
        .execution_options(synchronize_session=False)
    )
    if entered.scalar_one_or_none() is not None:
        note_phase(session, ticket.run_id, ticket.attempt, phase)


def beat(session: Session, ticket: RunTicket, worker: str) -> None:
    insert = insert_into(session, HeartbeatRow)
    changes = {"attempt": ticket.attempt, "worker": worker, "beat_at": database_now()}
    session.execute(
        insert.values(run_id=ticket.run_id, **changes).on_conflict_do_update(
            index_elements=["run_id"], set_=changes, where=HeartbeatRow.attempt <= ticket.attempt
        )
    )


def watched_runs(session: Session) -> list[WatchedRun]:
    """Every run that has not ended, with its last sign of life by the database's clock and its request."""
    last_sign = func.coalesce(HeartbeatRow.beat_at, RunRow.started_at)
    rows = session.execute(
        select(
            RunRow.id, RunRow.schedule_id, RunRow.attempt, RunRow.dagster_run_id, last_sign, database_now(),
            RunRow.request_key, RunRequestRow.state, RunRequestRow.launch, RunRequestRow.reason,
        )
        .outerjoin(HeartbeatRow, HeartbeatRow.run_id == RunRow.id)
        .outerjoin(RunRequestRow, RunRequestRow.request_key == RunRow.request_key)
        .where(RunRow.completed_at.is_(None))
        .order_by(RunRow.id)
    ).tuples()  # fmt: skip
    return [WatchedRun(*row) for row in rows]


def unended_run_of_dagster(session: Session, dagster_run_id: str, run_id: int | None) -> RunTicket | None:
    """The unended run that this Dagster run works on, or was launched for without ever opening it."""
    never_opened = and_(RunRow.id == run_id, RunRow.dagster_run_id.is_(None))
    mine = RunRow.dagster_run_id == dagster_run_id
    query = select(RunRow.id, RunRow.attempt).where(RunRow.completed_at.is_(None), or_(mine, never_opened))
    row = session.execute(query).tuples().first()
    return row and RunTicket(*row)


def write_log(
    session: Session, run_id: int, at: datetime, level: str, message: str, details: JsonObject | None = None
) -> None:
    session.add(
        LogRow(run_id=run_id, level=level, message=message, details=masked_document(details or {}), timestamp=at)
    )


def get_run(session: Session, run_id: int) -> Run:
    row = session.get(RunRow, run_id)
    if row is None:
        raise NotFoundError(f"Run {run_id} not found")
    return as_run(row)


def as_run(row: RunRow) -> Run:
    return Run.model_validate({name: getattr(row, name) for name in Run.model_fields})
