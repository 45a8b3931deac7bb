"""An attic full of rows: every kind that may go, old and young, with the old ones that something
still needs."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import count
from typing import Any

from sqlalchemy import Boolean, Column, DateTime, Float, Integer, String, inspect
from sqlalchemy.orm import Session

from automation_pipeline.audits.tables import AuditBatchItemRow, AuditBatchRow, AuditConfigRow
from automation_pipeline.automation.tables import LogRow, NotificationRow, RunRow, ScheduleRow
from automation_pipeline.enrichment.tables import EnrichmentJobRow
from automation_pipeline.fiches.tables import (
    CallRecordingRow,
    FetchDeliveryRow,
    FetchJobRow,
    FicheCacheRow,
)
from automation_pipeline.org_jobs.tables import OrgAlertRow
from automation_pipeline.pricing.tables import PricingAlertRow
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
# Older than anything is kept by default, and younger than anything is.
OLD, YOUNG = NOW - timedelta(days=400), NOW - timedelta(days=1)
_numbers = count(1)


def put(session: Session, table: type[Table], **values: Any) -> Any:
    """A row of which only what is given matters."""
    columns = inspect(table).column_attrs
    wanted = {
        one.key: _something(one.columns[0])
        for one in columns
        if one.key not in values and _must(one.columns[0])
    }
    row = table(**wanted, **values)
    session.add(row)
    session.flush()
    return row


def _must(column: Column[Any]) -> bool:
    given = column.default is not None or column.server_default is not None
    is_number = column.primary_key and isinstance(column.type, Integer) and not column.foreign_keys
    return not (column.nullable or given or is_number)


def _something(column: Column[Any]) -> object:
    kinds = {
        Boolean: False,
        Float: 0.0,
        Integer: 0,
        String: f"some {next(_numbers)}",
        DateTime: OLD,
    }
    for kind, value in kinds.items():
        if isinstance(column.type, kind) or isinstance(getattr(column.type, "impl", None), kind):
            return value
    return date(2020, 1, 1) if column.type.python_type is date else column.type.python_type()


def fill(session: Session) -> dict[str, set[object]]:
    """By table, the numbers of the rows that stay. Everything else is to go."""
    stay: dict[str, set[object]] = {}
    for row, stays in [
        *_of_ground(session),
        *_of_automation(session),
        *_of_crafts(session),
        *_of_others(session),
    ]:
        kept = stay.setdefault(row.__tablename__, set())
        if stays:
            kept.add(inspect(row).identity[0])
    return stay


def _of_ground(session: Session) -> Iterator[tuple[Any, bool]]:
    event = {"producer": "t", "available_at": OLD, "tenant_id": "t"}
    yield put(session, OutboxRow, **event, published_at=OLD), False
    yield put(session, OutboxRow, **event), True
    yield put(session, OutboxRow, **event | {"available_at": NEVER}, occurred_at=OLD), False
    yield put(session, OutboxRow, **event | {"available_at": NEVER}, occurred_at=YOUNG), True
    yield put(session, OutboxRow, **event, published_at=YOUNG), True
    for state, created_at, stays in (
        ("taken", OLD, False), ("refused", OLD, False), ("waiting", OLD, True), ("taken", YOUNG, True),
    ):  # fmt: skip
        yield put(session, RunRequestRow, state=state, created_at=created_at), stays
    for at, stays in ((OLD, False), (YOUNG, True)):
        yield put(session, IdempotencyKeyRow, created_at=at), stays
        yield put(session, LeaseRow, expires_at=at), stays
        yield put(session, RateLimitRow, paid_until=at.timestamp()), stays
        yield put(session, StepHeartbeatRow, beat_at=at), stays
        yield put(session, WorkflowLogRow, created_at=at), stays


def _of_automation(session: Session) -> Iterator[tuple[Any, bool]]:
    schedule = put(session, ScheduleRow)
    working = put(session, RunRow, schedule_id=schedule.id, status="running")
    ended = put(session, RunRow, schedule_id=schedule.id, status="completed", completed_at=OLD)
    values = {"channel": "webhook", "run_id": ended.id}
    yield working, True
    yield ended, True
    for run, at, stays in ((ended, OLD, False), (working, OLD, True), (ended, YOUNG, True)):
        yield put(session, LogRow, run_id=run.id, timestamp=at), stays
        yield (
            put(session, TransitionRow, machine="automation run", entity_id=str(run.id), at=at),
            stays,
        )
    for status, at, stays in (
        ("sent", OLD, False),
        ("pending", OLD, True),
        ("failed", YOUNG, True),
    ):
        yield put(session, NotificationRow, **values, status=status, created_at=at), stays


def _of_crafts(session: Session) -> Iterator[tuple[Any, bool]]:
    for status, delivery, at, stays in (
        ("complete", "sent", OLD, False), ("complete", "pending", OLD, True), ("processing", "sent", None, True),
        ("failed", "failed", YOUNG, True),
    ):  # fmt: skip
        job = put(session, FetchJobRow, status=status, completed_at=at)
        yield job, stays
        yield (
            put(session, FetchDeliveryRow, job_id=job.id, event="progress", status=delivery),
            stays,
        )
    fiche = put(session, FicheCacheRow)
    over, working = (
        put(session, TranscriptionRunRow, status=status) for status in ("completed", "running")
    )
    for run, state, at, stays in (
        (over, "done", OLD, False), (over, "cached", OLD, False), (over, "failed", OLD, True),
        (working, "done", OLD, True), (over, "done", YOUNG, True),
    ):  # fmt: skip
        recording = put(session, CallRecordingRow, fiche_cache_id=fiche.id)
        task = {"run_id": run.id, "recording_id": recording.id, "state": state, "finished_at": at}
        yield put(session, TranscriptionTaskRow, **task), stays
    batch = put(session, AuditBatchRow, audit_config_id=put(session, AuditConfigRow).id)
    item = put(session, AuditBatchItemRow, batch_id=batch.id, state="pending")
    yield (
        put(session, RunRequestRow, request_key=item.tracking_id, state="taken", created_at=OLD),
        True,
    )
    yield put(session, RunRequestRow, state="taken", created_at=YOUNG), True


def _of_others(session: Session) -> Iterator[tuple[Any, bool]]:
    for status, at, stays in (
        ("sent", OLD, False),
        ("pending", OLD, True),
        ("unsent", YOUNG, True),
    ):
        yield put(session, PricingAlertRow, severity="warning", status=status, raised_at=at), stays
    for at, stays in ((OLD, False), (YOUNG, True)):
        yield put(session, OrgAlertRow, severity="warning", status="sent", raised_at=at), stays
    for siren, state, at, stays in (
        ("1", "DONE", OLD, False), ("1", "DONE", OLD, True), ("2", "PENDING", None, True), ("3", "DONE", YOUNG, True),
    ):  # fmt: skip
        yield (
            put(session, EnrichmentJobRow, company_siren=siren, state=state, finished_at=at),
            stays,
        )
    for machine, at, stays in (
        ("rule run", OLD, False), ("rule target", OLD, False), ("enrichment", OLD, False), ("job run", OLD, False),
        ("enrichment", YOUNG, True),
    ):  # fmt: skip
        yield put(session, TransitionRow, machine=machine, entity_id="1", at=at), stays
