"""Queries about runs: add, lock, fence, heartbeat, phases, counts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import cast

from pydantic import SecretStr
from sqlalchemy import and_, bindparam, func, or_, select, update
from sqlalchemy.orm import Session

from automation_pipeline.automation.models.runs import (
    AUTOMATION_JOB,
    RUN_MACHINE,
    OutcomeStatus,
    Phase,
    PhaseEntry,
    PhaseLength,
    Run,
    RunAttempt,
    RunStatus,
    Trigger,
    phase_lengths,
)
from automation_pipeline.automation.models.schedules import (
    FicheSelection,
    Schedule,
    frozen_options,
    with_frozen_options,
)
from automation_pipeline.automation.queries.schedules import schedule_of_run
from automation_pipeline.automation.tables import (
    HeartbeatRow,
    LogRow,
    NotificationRow,
    RunPhaseRow,
    RunRow,
    ScheduleRow,
)
from automation_pipeline.core.errors import NotFoundError, PermanentError
from automation_pipeline.core.masking import masked_document
from automation_pipeline.core.webhooks import DeliveryStatus
from automation_pipeline.storage.group_commit import once_per_group
from automation_pipeline.storage.history import Transition, record_transitions
from automation_pipeline.storage.monitoring import MetricValue, add_metrics
from automation_pipeline.storage.run_requests import NewRunRequest, RunRequestRow
from automation_pipeline.storage.statements import among, database_now, database_time, insert_into
from automation_pipeline.storage.types import JsonObject


def note_phase(session: Session, run_id: int, attempt: int, phase: Phase) -> None:
    """Only the first entry of the attempt into the phase is stored."""
    entry = insert_into(session, RunPhaseRow).values(
        run_id=run_id, attempt=attempt, phase=phase, entered_at=database_now()
    )
    session.execute(entry.on_conflict_do_nothing())


def first_entry(session: Session, run_id: int) -> datetime | None:
    """When the run's first attempt started, by the database's clock; every attempt gets the same
    value."""
    return session.scalar(
        select(func.min(RunPhaseRow.entered_at)).where(RunPhaseRow.run_id == run_id)
    )


def seconds_since_start(session: Session, run_id: int) -> float:
    """Seconds since the run's first attempt started. The time budgets of its steps count from
    there."""
    at = first_entry(session, run_id)
    return 0.0 if at is None else max((database_time(session) - at).total_seconds(), 0.0)


def time_by_phase(session: Session, run_id: int) -> list[PhaseLength]:
    """The phase lengths of the run's last attempt, up to its end or to now."""
    query = (
        select(RunPhaseRow.phase, RunPhaseRow.entered_at)
        .join(RunRow, (RunRow.id == RunPhaseRow.run_id) & (RunRow.attempt == RunPhaseRow.attempt))
        .where(RunRow.id == run_id)
    )
    entries = {Phase(phase): entered_at for phase, entered_at in session.execute(query).tuples()}
    until = entries.get(Phase.FINALIZING) or database_time(session)
    return phase_lengths([PhaseEntry(*entry) for entry in entries.items()], until)


def measure_phases(session: Session, run_id: int) -> None:
    """Add the phases of the last attempt to the metrics. Call it once, in the transaction that ends
    the run."""
    measures: list[MetricValue] = []
    for length in time_by_phase(session, run_id):
        labels = f'phase="{length.phase}"'
        measures += [
            MetricValue("phase_seconds_total", labels, length.seconds),
            MetricValue("phases_total", labels, 1),
        ]
    add_metrics(session, measures)


_FENCED = (
    select(RunRow.attempt, RunRow.status)
    .where(RunRow.id == bindparam("run"))
    .with_for_update(read=True)
)


class StaleAttemptError(PermanentError):
    """A newer attempt works on the run, or the run has ended: the caller's results are
    discarded."""


class RunCancelledError(StaleAttemptError):
    """The attempt is the last one of a cancelled run. This is a recorded outcome, not a failure of
    the worker."""


@dataclass(frozen=True)
class WatchedRun:
    """A waiting or active run. `launch` counts the Dagster runs that its request has launched."""

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


def add_run(  # noqa: PLR0913  the options of a run
    session: Session,
    schedule: Schedule,
    trigger: Trigger,
    now: datetime,
    *,
    due_at: datetime | None = None,
    override: FicheSelection | None = None,
    retry_of: int | None = None,
) -> RunRow:
    """A run that waits for its first attempt. The snapshot keeps the requested options."""
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


def requested_selection(row: RunRow) -> FicheSelection | None:
    """The selection of the request, or the copy from the schedule. None: the run has not selected
    yet, so the schedule's current selection applies."""
    result = row.config_snapshot.get("overrides") or row.config_snapshot.get("selection")
    return None if result is None else FicheSelection.model_validate(result)


def selection_of(session: Session, row: RunRow) -> FicheSelection:
    """The run's selection: its override, or the schedule's selection, frozen when the run selected
    its fiches."""
    return requested_selection(row) or schedule_of_run(session, row.schedule_id).fiche_selection


@dataclass(frozen=True)
class RunPlan:
    """The options that a run froze: its schedule and selection, the age limit of fetched details,
    and the number of retries."""

    schedule: Schedule
    selection: FicheSelection
    since: datetime
    # The start of the run by the database's clock, if the schedule does not skip transcribed
    # fiches: older transcripts are renewed.
    renew_before: datetime | None = None
    # The audit configurations at the time of the selection.
    configs: tuple[int, ...] = ()

    @property
    def retries(self) -> int:
        return self.schedule.max_retries if self.schedule.retry_failed else 0


def run_plan(session: Session, run_id: int) -> RunPlan:
    row = session.get_one(RunRow, run_id)
    schedule = with_frozen_options(
        schedule_of_run(session, row.schedule_id), row.config_snapshot.get("options")
    )
    renew_before = None if schedule.skip_if_transcribed else first_entry(session, run_id)
    frozen = cast("list[int] | None", row.config_snapshot.get("auditConfigs"))
    configs = audit_configs_of(session, schedule) if frozen is None else tuple(frozen)
    return RunPlan(schedule, selection_of(session, row), row.started_at, renew_before, configs)


def audit_configs_of(session: Session, schedule: Schedule) -> tuple[int, ...]:
    """The configurations that the schedule names, then the automatic ones, each once. Empty if the
    schedule has no audits."""
    if not schedule.run_audits:
        return ()
    from automation_pipeline.audits.configs import automatic_configs  # noqa: PLC0415  the start of a run does not need audits

    automatic = automatic_configs(session) if schedule.use_automatic_audits else []
    return tuple(
        dict.fromkeys([*schedule.specific_audit_configs, *(stored.id for stored in automatic)])
    )


def freeze_options(session: Session, row: RunRow) -> None:
    """Later edits of the schedule and of the automatic configurations do not affect this run."""
    schedule = schedule_of_run(session, row.schedule_id)
    row.config_snapshot = {
        **row.config_snapshot,
        "selection": selection_of(session, row).model_dump(mode="json", by_alias=True),
        "options": frozen_options(schedule),
        "auditConfigs": list(audit_configs_of(session, schedule)),
    }


def runs_by_key(session: Session, request_keys: Sequence[str]) -> dict[str, RunRow]:
    rows = session.scalars(select(RunRow).where(among(session, RunRow.request_key, request_keys)))
    return {row.request_key: row for row in rows if row.request_key}


def external_key_of(session: Session, run_id: int) -> SecretStr | None:
    """The CRM key of the run's schedule, if it has its own."""
    key = session.scalar(
        select(ScheduleRow.external_api_key)
        .join(RunRow, RunRow.schedule_id == ScheduleRow.id)
        .where(RunRow.id == run_id)
    )
    return SecretStr(key) if key else None


def lock_run(session: Session, run_id: int) -> RunRow:
    row = session.scalar(select(RunRow).where(RunRow.id == run_id).with_for_update())
    if row is None:
        raise NotFoundError(f"Run {run_id} not found")
    return row


def last_run_of_root(session: Session, dagster_root_run_id: str) -> RunRow | None:
    """The newest row that this Dagster run or its retries have worked on."""
    return session.scalar(
        select(RunRow)
        .where(RunRow.dagster_root_run_id == dagster_root_run_id)
        .order_by(RunRow.id.desc())
        .limit(1)
        .with_for_update()
    )


def has_ended(session: Session, ticket: RunAttempt) -> bool:
    """Whether the attempt is the last one and its run has ended."""
    row = session.get(RunRow, ticket.run_id)
    return row is not None and row.attempt == ticket.attempt and row.completed_at is not None


def fence_attempt(session: Session, ticket: RunAttempt) -> None:
    """Fence the run: no newer attempt can start before this transaction ends."""
    once_per_group(session, (fence_attempt, ticket), lambda session: _fence(session, ticket))


def lock_attempt(session: Session, ticket: RunAttempt) -> RunRow:
    """Fence the run and return its locked row."""
    fence_attempt(session, ticket)
    return session.get_one(RunRow, ticket.run_id, populate_existing=True)


def _fence(session: Session, ticket: RunAttempt) -> None:
    row = session.execute(_FENCED, {"run": ticket.run_id}).first()
    if row is not None and (row.attempt, row.status) == (ticket.attempt, RunStatus.CANCELLED):
        raise RunCancelledError(f"Run {ticket.run_id} has been cancelled.")
    if row is None or row.attempt != ticket.attempt or row.status != RunStatus.RUNNING:
        raise StaleAttemptError(
            f"Attempt {ticket.attempt} of run {ticket.run_id} is no longer the current one."
        )


def enter_phase(session: Session, ticket: RunAttempt, phase: Phase) -> None:
    """Fence the run and set its phase. The update comes before the fence, because an update after a
    shared lock could deadlock with another batch."""
    entered = session.execute(
        update(RunRow)
        .where(
            RunRow.id == ticket.run_id,
            RunRow.attempt == ticket.attempt,
            RunRow.phase.is_distinct_from(phase),
        )
        .values(phase=phase)
        .returning(RunRow.id)
        .execution_options(synchronize_session=False)
    )
    if entered.scalar_one_or_none() is not None:
        note_phase(session, ticket.run_id, ticket.attempt, phase)
    fence_attempt(session, ticket)


def record_heartbeat(session: Session, ticket: RunAttempt, worker: str) -> None:
    insert = insert_into(session, HeartbeatRow)
    changes = {"attempt": ticket.attempt, "worker": worker, "beat_at": database_now()}
    session.execute(
        insert.values(run_id=ticket.run_id, **changes).on_conflict_do_update(
            index_elements=["run_id"], set_=changes, where=HeartbeatRow.attempt <= ticket.attempt
        )
    )


def watched_runs(session: Session) -> list[WatchedRun]:
    """Every unfinished run with its request and its last heartbeat by the database's clock."""
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


def status_of_closed_run(session: Session, dagster_run_id: str) -> RunStatus | None:
    """The status of the run whose newest attempt this Dagster run opened; None if the run has not
    ended."""
    closed = (RunRow.dagster_run_id == dagster_run_id, RunRow.completed_at.is_not(None))
    status = session.scalar(select(RunRow.status).where(*closed))
    return None if status is None else RunStatus(status)


def unended_run_of_dagster(
    session: Session, dagster_run_id: str, run_id: int | None
) -> RunAttempt | None:
    """The unfinished run that this Dagster run works on, or was launched for without opening it."""
    never_opened = and_(RunRow.id == run_id, RunRow.dagster_run_id.is_(None))
    mine = RunRow.dagster_run_id == dagster_run_id
    query = select(RunRow.id, RunRow.attempt).where(
        RunRow.completed_at.is_(None), or_(mine, never_opened)
    )
    row = session.execute(query).tuples().first()
    return row and RunAttempt(*row)


def write_log(
    session: Session,
    run_id: int,
    at: datetime,
    level: str,
    message: str,
    details: JsonObject | None = None,
) -> None:
    session.add(
        LogRow(
            run_id=run_id,
            level=level,
            message=message,
            details=masked_document(details or {}),
            timestamp=at,
        )
    )


def move_run(
    session: Session, row: RunRow, status: RunStatus, by: str, at: datetime, why: str | None = None
) -> None:
    before = RunStatus(row.status)
    row.status = RUN_MACHINE.move(before, status)
    transition = Transition(RUN_MACHINE.name, str(row.id), before, status, by, at, why)
    record_transitions(session, [transition])


def run_request(
    key: str,
    schedule_id: int,
    run_id: int,
    trigger: str,
    *,
    due_at: datetime | None = None,
    launch: int = 1,
) -> NewRunRequest:
    config: dict[str, object] = {"schedule_id": schedule_id, "run_id": run_id}
    if due_at is not None:
        config["due_at"] = due_at.isoformat()
    tags = {
        "automation/schedule_id": str(schedule_id),
        "automation/run_id": str(run_id),
        "automation/trigger": trigger,
    }
    return NewRunRequest(key, AUTOMATION_JOB, config, tags, launch)


def get_run(session: Session, run_id: int) -> Run:
    row = session.get(RunRow, run_id)
    if row is None:
        raise NotFoundError(f"Run {run_id} not found")
    return as_run(row)


def as_run(row: RunRow) -> Run:
    return Run.model_validate({name: getattr(row, name) for name in Run.model_fields})


@dataclass(frozen=True)
class RunCounts:
    """Counts over the stored runs. The fiche counts are those of ended runs."""

    runs: Mapping[RunStatus, int]
    fiches: Mapping[OutcomeStatus, int]


def count_runs(session: Session) -> RunCounts:
    fiches = {
        OutcomeStatus.SUCCESSFUL: RunRow.successful_fiches,
        OutcomeStatus.FAILED: RunRow.failed_fiches,
        OutcomeStatus.IGNORED: RunRow.ignored_fiches,
    }
    sums = [func.coalesce(func.sum(column), 0) for column in fiches.values()]
    query = select(RunRow.status, func.count(), *sums).group_by(RunRow.status)
    rows = session.execute(query).tuples().all()
    counts = {status: count for status, count, *_ in rows}
    return RunCounts(
        runs={status: counts.get(status, 0) for status in RunStatus},
        fiches={
            status: sum(int(row[column]) for row in rows)
            for column, status in enumerate(fiches, start=2)
        },
    )


def failed_notifications(session: Session) -> int:
    query = select(func.count()).where(NotificationRow.status == DeliveryStatus.FAILED)
    return session.scalar(query) or 0
