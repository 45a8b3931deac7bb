"""Rows of every kind that a purge deletes, on both sides of the age limit, and old rows that are
still needed."""

from collections import defaultdict
from datetime import UTC, date, datetime, timedelta
from itertools import count
from typing import Any

from sqlalchemy import Boolean, Column, DateTime, Float, Integer, String, inspect
from sqlalchemy.orm import Session

from automation_pipeline.audits.tables import AuditBatchItemRow, AuditBatchRow, AuditConfigRow
from automation_pipeline.automation.tables import LogRow, NotificationRow, RunRow, ScheduleRow
from automation_pipeline.core.settings import Settings
from automation_pipeline.enrichment.tables import EnrichmentJobRow
from automation_pipeline.fiches.tables import (
    CallRecordingRow,
    FetchDeliveryRow,
    FetchJobRow,
    FicheCacheRow,
)
from automation_pipeline.org_jobs.tables import (
    AuditLogRow,
    BatchRow,
    FireRow,
    JobRunRow,
    OrgAlertRow,
    OrganisationRow,
    OrgJobRow,
    OrgScheduleRow,
)
from automation_pipeline.pricing.tables import PricingAlertRow, RuleRow, RuleRunRow, RuleTargetRow
from automation_pipeline.storage.claims import LeaseRow
from automation_pipeline.storage.history import TransitionRow, WorkflowLogRow
from automation_pipeline.storage.idempotency import IdempotencyKeyRow
from automation_pipeline.storage.monitoring import StepHeartbeatRow
from automation_pipeline.storage.outbox import NEVER, OutboxRow
from automation_pipeline.storage.rate_limits import RateLimitRow
from automation_pipeline.storage.run_requests import RunRequestRow
from automation_pipeline.storage.types import Table
from automation_pipeline.transcription.tables import TranscriptionRunRow, TranscriptionTaskRow

NOW = datetime(2021, 6, 1, 12, tzinfo=UTC)
# Older than every default limit, and younger than every default limit.
OLD, YOUNG = NOW - timedelta(days=400), NOW - timedelta(days=1)
_numbers = count(1)


def add_row(session: Session, table: type[Table], **values: Any) -> Any:
    """Add a row with these values and placeholders in the other columns that must not be null."""
    placeholders = {
        one.key: _placeholder(one.columns[0])
        for one in inspect(table).column_attrs
        if one.key not in values and _is_required(one.columns[0])
    }
    row = table(**placeholders, **values)
    session.add(row)
    session.flush()
    return row


def _is_required(column: Column[Any]) -> bool:
    has_default = column.default is not None or column.server_default is not None
    is_generated = (
        column.primary_key and isinstance(column.type, Integer) and not column.foreign_keys
    )
    return not (column.nullable or has_default or is_generated)


def _placeholder(column: Column[Any]) -> object:
    values = {
        Boolean: False,
        Float: 0.0,
        Integer: 0,
        String: f"some {next(_numbers)}",
        DateTime: OLD,
    }
    for type_, value in values.items():
        if isinstance(column.type, type_) or isinstance(getattr(column.type, "impl", None), type_):
            return value
    return date(2020, 1, 1) if column.type.python_type is date else column.type.python_type()


def ages(setting: str) -> tuple[datetime, datetime]:
    """The instant at which a row is just old enough to be deleted, and the next instant."""
    limit = NOW - timedelta(days=Settings.model_fields[setting].default)
    return limit, limit + timedelta(seconds=1)


class _Rows:
    """Adds rows, and remembers which of them a purge must keep."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.kept: defaultdict[str, set[object]] = defaultdict(set)

    def delete(self, table: type[Table], **values: Any) -> Any:
        self.kept[table.__tablename__]  # all other rows of the table are deleted
        return add_row(self.session, table, **values)

    def keep(self, table: type[Table], **values: Any) -> Any:
        row = add_row(self.session, table, **values)
        self.kept[table.__tablename__].add(inspect(row).identity[0])
        return row


def fill(session: Session) -> dict[str, set[object]]:
    """Add the rows, and return the keys of those that a purge keeps, by table."""
    rows = _Rows(session)
    _add_events_and_requests(rows)
    _add_rows_with_one_condition(rows)
    _add_rows_of_automation_runs(rows)
    _add_fetch_jobs(rows)
    _add_transcription_tasks(rows)
    _add_pricing_rows(rows)
    _add_enrichment_rows(rows)
    _add_rows_of_organisations(rows)
    # The newest row of a table with numbered rows always stays.
    rows.keep(TransitionRow, machine="another machine", entity_id="1", at=OLD)
    return rows.kept


def _add_events_and_requests(rows: _Rows) -> None:
    event = {"producer": "t", "available_at": OLD, "tenant_id": "t", "occurred_at": OLD}
    limit, young = ages("outbox_keep_days")
    rows.delete(OutboxRow, **event, published_at=limit)
    rows.keep(OutboxRow, **event, published_at=young)
    rows.keep(OutboxRow, **event)
    limit, young = ages("outbox_parked_keep_days")
    parked = event | {"available_at": NEVER, "occurred_at": limit}
    rows.delete(OutboxRow, **parked)
    rows.keep(OutboxRow, **parked, published_at=YOUNG)
    rows.keep(OutboxRow, **parked, claimed_until=OLD)
    rows.keep(OutboxRow, **parked | {"occurred_at": young})

    limit, young = ages("run_requests_keep_days")
    batch = add_row(
        rows.session, AuditBatchRow, audit_config_id=add_row(rows.session, AuditConfigRow).id
    )
    item = {"batch_id": batch.id, "state": "pending"}
    awaited = add_row(rows.session, AuditBatchItemRow, **item).tracking_id
    rows.keep(RunRequestRow, request_key=awaited, state="taken", created_at=OLD)
    rows.delete(RunRequestRow, state="taken", created_at=limit)
    rows.delete(RunRequestRow, state="refused", created_at=limit)
    rows.keep(RunRequestRow, state="waiting", created_at=limit)
    rows.keep(RunRequestRow, state="taken", created_at=young)


def _add_rows_with_one_condition(rows: _Rows) -> None:
    for setting, table, column in (
        ("idempotency_keys_keep_days", IdempotencyKeyRow, "created_at"),
        ("leases_keep_days", LeaseRow, "expires_at"),
        ("leases_keep_days", StepHeartbeatRow, "beat_at"),
        ("workflow_logs_keep_days", WorkflowLogRow, "created_at"),
    ):
        limit, young = ages(setting)
        rows.delete(table, **{column: limit})
        rows.keep(table, **{column: young})
    limit, young = ages("leases_keep_days")
    rows.delete(RateLimitRow, paid_until=limit.timestamp())
    rows.keep(RateLimitRow, paid_until=young.timestamp())


def _add_rows_of_automation_runs(rows: _Rows) -> None:
    schedule = add_row(rows.session, ScheduleRow)
    limits = {
        LogRow: "automation_logs_keep_days",
        NotificationRow: "automation_notifications_keep_days",
        TransitionRow: "state_transitions_keep_days",
    }
    for table, setting in limits.items():
        limit, young = ages(setting)
        active = rows.keep(RunRow, schedule_id=schedule.id, status="running")
        recent = rows.keep(RunRow, schedule_id=schedule.id, status="completed", completed_at=young)
        ended = rows.keep(RunRow, schedule_id=schedule.id, status="completed", completed_at=limit)
        for run, at, add in (
            (ended, limit, rows.delete),
            (active, limit, rows.keep),
            (recent, limit, rows.delete if table is TransitionRow else rows.keep),
            (ended, young, rows.keep),
        ):
            if table is LogRow:
                add(LogRow, run_id=run.id, timestamp=at)
            elif table is NotificationRow:
                values = {"run_id": run.id, "channel": "webhook", "created_at": at}
                add(NotificationRow, status="sent", **values)
                rows.keep(NotificationRow, status="pending", **values)
            else:
                add(TransitionRow, machine="automation run", entity_id=str(run.id), at=at)
    limit, _ = ages("state_transitions_keep_days")
    rows.delete(TransitionRow, machine="automation run", entity_id="999", at=limit)


def _add_fetch_jobs(rows: _Rows) -> None:
    limit, young = ages("fetch_jobs_keep_days")
    for status, delivery, completed_at, add in (
        ("complete", "sent", limit, rows.delete),
        ("failed", "failed", limit, rows.delete),
        ("complete", "pending", limit, rows.keep),
        ("processing", "sent", limit, rows.keep),
        ("failed", "failed", young, rows.keep),
    ):
        job = add(FetchJobRow, status=status, completed_at=completed_at)
        add(FetchDeliveryRow, job_id=job.id, event="progress", status=delivery)


def _add_transcription_tasks(rows: _Rows) -> None:
    limit, young = ages("transcription_tasks_keep_days")
    fiche = add_row(rows.session, FicheCacheRow)
    ended, active = (
        add_row(rows.session, TranscriptionRunRow, status=status)
        for status in ("completed", "running")
    )
    for run, state, finished_at, add in (
        (ended, "done", limit, rows.delete),
        (ended, "cached", limit, rows.delete),
        (ended, "failed", limit, rows.keep),
        (active, "done", limit, rows.keep),
        (ended, "done", young, rows.keep),
    ):
        recording = add_row(rows.session, CallRecordingRow, fiche_cache_id=fiche.id)
        task = {"run_id": run.id, "recording_id": recording.id}
        add(TranscriptionTaskRow, **task, state=state, finished_at=finished_at)


def _add_pricing_rows(rows: _Rows) -> None:
    limit, young = ages("pricing_alerts_keep_days")
    for status, raised_at, add in (
        ("sent", limit, rows.delete),
        ("unsent", limit, rows.delete),
        ("pending", limit, rows.keep),
        ("sent", young, rows.keep),
    ):
        add(PricingAlertRow, severity="warning", status=status, raised_at=raised_at)

    limit, young = ages("state_transitions_keep_days")

    def run_of(**values: object) -> RuleRunRow:
        rule = add_row(rows.session, RuleRow)
        return add_row(rows.session, RuleRunRow, rule_id=rule.id, queued_at=OLD, **values)

    def target_of(run: RuleRunRow) -> RuleTargetRow:
        return add_row(rows.session, RuleTargetRow, rule_run_id=run.id, status="PREVIEW")

    runs = [
        (run_of(status="QUEUED"), rows.keep),
        (run_of(status="PREVIEW"), rows.delete),
        (run_of(status="PREVIEW", wish="apply"), rows.keep),
    ]
    # Targets have the same ids as runs, but not as their own runs.
    targets = [(target_of(runs[number][0]), runs[number][1]) for number in (1, 0, 2)]
    for machine, entities in (("rule run", runs), ("rule target", targets)):
        for entity, add in entities:
            add(TransitionRow, machine=machine, entity_id=str(entity.id), at=limit)
            rows.keep(TransitionRow, machine=machine, entity_id=str(entity.id), at=young)
        rows.delete(TransitionRow, machine=machine, entity_id="999", at=limit)


def _add_enrichment_rows(rows: _Rows) -> None:
    limit, young = ages("enrichment_jobs_keep_days")
    for siren, state, finished_at, add in (
        ("1", "DONE", limit, rows.delete),
        ("1", "DONE", limit, rows.keep),
        ("2", "DONE", young, rows.keep),
        ("2", "PENDING", None, rows.keep),
        ("3", "DONE", limit, rows.keep),
    ):
        add(EnrichmentJobRow, company_siren=siren, state=state, finished_at=finished_at)
    limit, young = ages("state_transitions_keep_days")
    rows.delete(TransitionRow, machine="enrichment", entity_id="1", at=limit)
    rows.keep(TransitionRow, machine="enrichment", entity_id="1", at=young)


def _add_rows_of_organisations(rows: _Rows) -> None:
    """Rows of organisations are deleted when they are older than the limit, not as old."""
    limit, _ = ages("org_jobs_keep_days")
    older = limit - timedelta(seconds=1)
    org = {"org_id": add_row(rows.session, OrganisationRow, max_running=1).id}
    policies = {"window_policy": "CLAMP", "misfire_policy": "SKIP", "overlap_policy": "SKIP"}
    schedule = {**org, **policies, "state": "PAUSED"}
    job = {**org, "performer": "agent"}
    fire = {**org, "trigger": "MANUAL", "outcome": "DISPATCHED"}
    alert = {"severity": "warning", "status": "sent"}

    active = rows.keep(OrgScheduleRow, **schedule)
    rows.delete(OrgScheduleRow, **schedule, deleted_at=older)
    rows.keep(OrgScheduleRow, **schedule, deleted_at=limit)
    of_active = {"schedule_id": active.id}
    for table, values in (
        (FireRow, fire | {"fired_at": limit}),
        (OrgJobRow, job | {"status": "pending"}),
        (BatchRow, org | {"status": "running"}),
    ):
        with_history = rows.keep(OrgScheduleRow, **schedule, deleted_at=older)
        rows.keep(table, **values, schedule_id=with_history.id)

    for status, finished_at, add in (
        ("completed", older, rows.delete),
        ("completed", limit, rows.keep),
        ("running", older, rows.keep),
    ):
        add(BatchRow, **org, **of_active, status=status, finished_at=finished_at)
    batches = [
        rows.keep(BatchRow, **org, **of_active, status="completed", finished_at=older)
        for _ in range(2)
    ]
    backfill = {**fire, **of_active, "trigger": "BACKFILL", "batch_id": batches[0].id}
    rows.keep(FireRow, **backfill, fired_at=limit)
    rows.keep(OrgJobRow, **job, status="pending", batch_id=batches[1].id)

    rows.delete(FireRow, **fire, **of_active, fired_at=older)
    used = rows.keep(FireRow, **fire, **of_active, fired_at=older)
    retried = rows.keep(OrgJobRow, **job, status="failed", finished_at=older)
    rows.delete(OrgJobRow, **job, status="success", finished_at=older)
    rows.keep(OrgJobRow, **job, status="cancelled", finished_at=limit)
    rows.keep(OrgJobRow, **job, status="running", finished_at=older)
    rows.keep(OrgJobRow, **job, status="pending", schedule_fire_id=used.id)
    ended = {"max_attempts": 1, "status": "success", "finished_at": older}
    newest = rows.keep(JobRunRow, **job, **ended, job_id=retried.id)

    for machine, entity_id in (("job run", str(newest.id)), ("schedule", active.id)):
        rows.keep(TransitionRow, machine=machine, entity_id=entity_id, at=older)
        rows.delete(TransitionRow, machine=machine, entity_id="999", at=older)
        rows.keep(TransitionRow, machine=machine, entity_id="999", at=limit)
    rows.delete(OrgAlertRow, **alert, raised_at=older)
    rows.keep(OrgAlertRow, **alert, raised_at=limit)
    limit, _ = ages("org_jobs_audit_keep_days")
    rows.delete(AuditLogRow, **org, at=limit - timedelta(seconds=1))
    rows.keep(AuditLogRow, **org, at=limit)
    # The newest row of a table with numbered rows always stays.
    rows.keep(OrgAlertRow, **alert, raised_at=YOUNG)
    rows.keep(AuditLogRow, **org, at=YOUNG)
    rows.keep(BatchRow, **org, **of_active, status="running")
    rows.keep(FireRow, **fire, **of_active, fired_at=limit)
