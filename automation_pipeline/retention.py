"""Retention: which old rows are deleted, the setting with their age, and the purge. The purge
deletes rows in small batches, together with the rows that refer to them."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import cast

from sqlalchemy import BigInteger, ColumnElement, Text, delete, exists, func, inspect, or_, select
from sqlalchemy import cast as cast_column
from sqlalchemy.orm import InstrumentedAttribute, aliased

from automation_pipeline.audits.requests import is_awaited_by_batch
from automation_pipeline.automation.models.runs import RUN_MACHINE
from automation_pipeline.automation.tables import LogRow, NotificationRow, RunRow
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.alerts import AlertStatus
from automation_pipeline.core.errors import AutomationError
from automation_pipeline.core.webhooks import DeliveryStatus
from automation_pipeline.enrichment.models import ENRICHMENT
from automation_pipeline.enrichment.tables import EnrichmentJobRow
from automation_pipeline.fiches.models.fetch_jobs import FETCH_JOB
from automation_pipeline.fiches.tables import FetchDeliveryRow, FetchJobRow
from automation_pipeline.org_jobs.models.jobs import ENDED_RUN_STATES, JOB_RUN, SCHEDULE, BatchState
from automation_pipeline.org_jobs.tables import (
    AuditLogRow,
    BatchRow,
    FireRow,
    JobRunRow,
    OrgAlertRow,
    OrgJobRow,
    OrgScheduleRow,
)
from automation_pipeline.pricing.models.runs import ACTIVE_RUN_STATES, RULE_RUN, RULE_TARGET
from automation_pipeline.pricing.tables import PricingAlertRow, RuleRunRow, RuleTargetRow
from automation_pipeline.storage.claims import LeaseRow
from automation_pipeline.storage.database import Database, DatabaseNotReadyError
from automation_pipeline.storage.history import TransitionRow, WorkflowLogRow
from automation_pipeline.storage.idempotency import IdempotencyKeyRow
from automation_pipeline.storage.monitoring import StepHeartbeatRow
from automation_pipeline.storage.outbox import NEVER, OutboxRow
from automation_pipeline.storage.rate_limits import RateLimitRow
from automation_pipeline.storage.run_requests import NewRunRequest, RunRequestRow, file_requests
from automation_pipeline.storage.statements import among, database_time
from automation_pipeline.storage.types import Table
from automation_pipeline.transcription.models import TaskState, TranscriptionStatus
from automation_pipeline.transcription.tables import TranscriptionRunRow, TranscriptionTaskRow

JOB = "housekeeping"
BATCH = 1000
# SQLite does not queue its writers: without a pause the purge
# would lock out all others.
PAUSE_SECONDS = 0.05
# One purge deletes at most a million rows of a kind; the next one continues.
MAX_PASSES = 1000

Conditions = Sequence[ColumnElement[bool]]


@dataclass(frozen=True)
class Kind:
    """Rows that may be deleted when they are old. `are_old` returns the conditions for rows that
    are older than an instant."""

    name: str
    table: type[Table]
    are_old: Callable[[datetime], Conditions]

    @property
    def key(self) -> ColumnElement[int]:
        """Some keys are texts, so a key is only compared with keys of its own table."""
        return cast("ColumnElement[int]", inspect(self.table).primary_key[0])

    def chosen(self, before: datetime) -> Conditions:
        """Without the newest row, because SQLite would use its id again, and ids are part of keys."""
        newest = select(func.max(self.key)).scalar_subquery()
        numbered = [self.key < newest] if self.key.type.python_type is int else []
        return *self.are_old(before), *numbered


def _parked_events(before: datetime) -> Conditions:
    """Waiting events stay, however old they are."""
    is_free = OutboxRow.claimed_until.is_(None), OutboxRow.available_at == NEVER
    return OutboxRow.published_at.is_(None), *is_free, OutboxRow.occurred_at <= before


def _settled_requests(before: datetime) -> Conditions:
    """The key of such a request is never filed again, because it contains an id, an instant, a past
    day, or a random number."""
    is_settled = RunRequestRow.state.in_(("taken", "refused"))
    return is_settled, RunRequestRow.created_at <= before, ~is_awaited_by_batch()


def _run_has_ended(run_id: InstrumentedAttribute[int], before: datetime) -> ColumnElement[bool]:
    return exists().where(RunRow.id == run_id, RunRow.completed_at <= before)


def _run_logs(before: datetime) -> Conditions:
    return LogRow.timestamp <= before, _run_has_ended(LogRow.run_id, before)


def _notifications(before: datetime) -> Conditions:
    is_sent = NotificationRow.status != DeliveryStatus.PENDING
    has_ended = _run_has_ended(NotificationRow.run_id, before)
    return NotificationRow.created_at <= before, is_sent, has_ended


def _run_transitions(before: datetime) -> Conditions:
    works = exists().where(
        cast_column(RunRow.id, Text) == TransitionRow.entity_id, RunRow.completed_at.is_(None)
    )
    return TransitionRow.machine == RUN_MACHINE.name, TransitionRow.at <= before, ~works


def _pricing_transitions(before: datetime) -> Conditions:
    """State changes of runs with pending work stay."""
    has_work = or_(RuleRunRow.status.in_(ACTIVE_RUN_STATES), RuleRunRow.wish.is_not(None))
    entity = cast_column(TransitionRow.entity_id, BigInteger)
    works = exists().where(RuleRunRow.id == entity, has_work)
    of_run = RuleTargetRow.rule_run_id == RuleRunRow.id
    run_works = exists().where(RuleTargetRow.id == entity, of_run, has_work)
    is_free = or_(
        (TransitionRow.machine == RULE_RUN.name) & ~works,
        (TransitionRow.machine == RULE_TARGET.name) & ~run_works,
    )
    return TransitionRow.at <= before, is_free


def _enrichment_transitions(before: datetime) -> Conditions:
    return TransitionRow.machine == ENRICHMENT.name, TransitionRow.at <= before


def _enrichment_jobs(before: datetime) -> Conditions:
    """Ended jobs. The newest job of a company stays, because the company shows it."""
    newer = aliased(EnrichmentJobRow)
    has_newer = exists().where(
        newer.company_siren == EnrichmentJobRow.company_siren, newer.id > EnrichmentJobRow.id
    )
    return EnrichmentJobRow.finished_at <= before, has_newer


def _fetch_jobs(before: datetime) -> Conditions:
    is_over = FetchJobRow.status.in_([status.value for status in FETCH_JOB.terminal])
    has_pending_delivery = exists().where(
        FetchDeliveryRow.job_id == FetchJobRow.id, FetchDeliveryRow.status == DeliveryStatus.PENDING
    )
    return is_over, FetchJobRow.completed_at <= before, ~has_pending_delivery


def _transcription_tasks(before: datetime) -> Conditions:
    is_over = TranscriptionTaskRow.state.in_((TaskState.DONE, TaskState.CACHED))
    runs = exists().where(
        TranscriptionRunRow.id == TranscriptionTaskRow.run_id,
        TranscriptionRunRow.status == TranscriptionStatus.RUNNING,
    )
    return is_over, TranscriptionTaskRow.finished_at <= before, ~runs


def _pricing_alerts(before: datetime) -> Conditions:
    return PricingAlertRow.raised_at <= before, PricingAlertRow.status != AlertStatus.PENDING


def _org_jobs(before: datetime) -> Conditions:
    """Ended jobs, with their runs and attempts. The newest run stays, because keys of worker
    requests contain the run's id."""
    newest_run = select(func.max(JobRunRow.id)).scalar_subquery()
    has_newest_run = exists().where(JobRunRow.job_id == OrgJobRow.id, JobRunRow.id == newest_run)
    has_ended = OrgJobRow.status.in_(ENDED_RUN_STATES)
    return OrgJobRow.finished_at < before, has_ended, ~has_newest_run


def _org_fires(before: datetime) -> Conditions:
    return FireRow.fired_at < before, ~exists().where(OrgJobRow.schedule_fire_id == FireRow.id)


def _org_batches(before: datetime) -> Conditions:
    has_fire = exists().where(FireRow.batch_id == BatchRow.id)
    has_job = exists().where(OrgJobRow.batch_id == BatchRow.id)
    has_ended = BatchRow.status != BatchState.RUNNING
    return has_ended, BatchRow.finished_at < before, ~has_fire, ~has_job


def _org_schedules(before: datetime) -> Conditions:
    """Deleted schedules without history."""
    history = (FireRow, OrgJobRow, BatchRow)
    left = (exists().where(table.schedule_id == OrgScheduleRow.id) for table in history)
    return OrgScheduleRow.deleted_at < before, *(~one for one in left)


def _org_transitions(before: datetime) -> Conditions:
    """State changes of deleted runs and schedules."""
    entity, machine = TransitionRow.entity_id, TransitionRow.machine
    has_run = exists().where(cast_column(JobRunRow.id, Text) == entity)
    has_schedule = exists().where(OrgScheduleRow.id == entity)
    is_left = or_((machine == JOB_RUN.name) & ~has_run, (machine == SCHEDULE.name) & ~has_schedule)
    return TransitionRow.at < before, is_left


# By setting: the kinds of rows that it keeps, in the order of deletion.
KINDS: Mapping[str, Sequence[Kind]] = {
    "outbox_keep_days": (
        Kind("events_outbox", OutboxRow, lambda before: (OutboxRow.published_at <= before,)),
    ),
    "outbox_parked_keep_days": (Kind("events_outbox, parked", OutboxRow, _parked_events),),
    "run_requests_keep_days": (Kind("run_requests", RunRequestRow, _settled_requests),),
    # `claim_key` repeats an answer for a week at most.
    "idempotency_keys_keep_days": (
        Kind(
            "idempotency_keys",
            IdempotencyKeyRow,
            lambda before: (IdempotencyKeyRow.created_at <= before,),
        ),
    ),
    "leases_keep_days": (
        # Tokens follow the clock: a new lease of a deleted key has a higher token.
        Kind("leases", LeaseRow, lambda before: (LeaseRow.expires_at <= before,)),
        # A rate limit whose reservations ended long ago allows the same as a missing one.
        Kind(
            "rate_limits",
            RateLimitRow,
            lambda before: (RateLimitRow.paid_until <= before.timestamp(),),
        ),
        # Rows of lost workers, whose runs ended or were requested again within minutes.
        Kind("step_beats", StepHeartbeatRow, lambda before: (StepHeartbeatRow.beat_at <= before,)),
    ),
    "workflow_logs_keep_days": (
        Kind(
            "workflow_logs", WorkflowLogRow, lambda before: (WorkflowLogRow.created_at <= before,)
        ),
    ),
    "automation_logs_keep_days": (Kind("automation_logs", LogRow, _run_logs),),
    "automation_notifications_keep_days": (
        Kind("automation_notifications", NotificationRow, _notifications),
    ),
    "state_transitions_keep_days": (
        Kind("state_transitions, automation", TransitionRow, _run_transitions),
        Kind("state_transitions, pricing", TransitionRow, _pricing_transitions),
        Kind("state_transitions, enrichment", TransitionRow, _enrichment_transitions),
    ),
    "fetch_jobs_keep_days": (Kind("progressive_fetch_jobs", FetchJobRow, _fetch_jobs),),
    "transcription_tasks_keep_days": (
        Kind("transcription_tasks", TranscriptionTaskRow, _transcription_tasks),
    ),
    "pricing_alerts_keep_days": (Kind("pricing_alerts", PricingAlertRow, _pricing_alerts),),
    "enrichment_jobs_keep_days": (Kind("enrichment_jobs", EnrichmentJobRow, _enrichment_jobs),),
    # The history of a schedule is deleted before the schedule.
    "org_jobs_keep_days": (
        Kind("org_jobs", OrgJobRow, _org_jobs),
        Kind("org_schedule_fires", FireRow, _org_fires),
        Kind("org_job_batches", BatchRow, _org_batches),
        Kind("org_schedules", OrgScheduleRow, _org_schedules),
        Kind("state_transitions, org_jobs", TransitionRow, _org_transitions),
        Kind("org_alerts", OrgAlertRow, lambda before: (OrgAlertRow.raised_at < before,)),
    ),
    "org_jobs_audit_keep_days": (
        Kind("org_audit_log", AuditLogRow, lambda before: (AuditLogRow.at < before,)),
    ),
}


def request_housekeeping(services: Services) -> str:
    """Returns the key of the request. Two requests within the same millisecond are one."""
    now = services.clock.now()
    key = f"{JOB}-{round(now.timestamp() * 1000)}"
    with services.database.transaction() as session:
        file_requests(session, [NewRunRequest(key, JOB, {}, {})], now)
    return key


async def purge_all(
    services: Services, *, is_dry: bool = False, batch: int = BATCH
) -> Mapping[str, int]:
    """Delete the old rows of every kind, and return their numbers; a dry purge only counts them. A
    setting of 0 days keeps its rows for ever. The first error is raised after the other kinds are
    done. A purge that was interrupted is continued by the next one, and two concurrent purges
    delete each row once."""
    with services.database.reading() as session:
        # The earlier of both clocks, so that a clock that is ahead deletes nothing.
        now = min(services.clock.now(), database_time(session))
    deleted: dict[str, int] = {}
    errors: list[AutomationError] = []
    for setting, kinds in KINDS.items():
        keep_days = getattr(services.settings, setting)
        for kind in kinds:
            deleted[kind.name] = 0
            try:
                for _ in range(MAX_PASSES if keep_days else 0):
                    before = now - timedelta(days=keep_days)
                    count = purge(kind, before, batch, database=services.database, is_dry=is_dry)
                    deleted[kind.name] += count
                    if is_dry or count < batch:
                        break
                    await asyncio.sleep(PAUSE_SECONDS)
            except AutomationError as error:
                errors.append(error)
    if errors:
        raise errors[0]
    return deleted


def purge(
    kind: Kind, before: datetime, limit: int, *, database: Database, is_dry: bool = False
) -> int:
    """Delete at most `limit` rows that are older than the instant. A dry purge counts all of them."""
    chosen, old = kind.chosen(before), kind.are_old(before)
    try:
        # The search has no lock, because on SQLite all writers would wait for it.
        with database.reading() as session:
            if is_dry:
                return session.execute(select(func.count(kind.key)).where(*chosen)).scalar_one()
            oldest = select(kind.key).where(*chosen).order_by(kind.key).limit(limit)
            found = session.scalars(oldest).all()
        if not found:
            return 0
        with database.transaction() as session:
            # The rows that are still old and that no other transaction holds.
            query = select(kind.key).where(among(session, kind.key, found), *old).order_by(kind.key)
            free = session.scalars(query.with_for_update(of=kind.table, skip_locked=True)).all()
            if free:
                expired = delete(kind.table).where(among(session, kind.key, free), *old)
                session.execute(expired.execution_options(synchronize_session=False))
            return len(free)
    except DatabaseNotReadyError:  # the pending upgrade creates the table
        return 0
