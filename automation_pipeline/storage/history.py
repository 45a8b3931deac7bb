"""The history that operators read: the workflow log and the log of state transitions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, Index, func, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from automation_pipeline.core.clock import iso
from automation_pipeline.core.events import WorkflowLogEntry
from automation_pipeline.core.masking import masked_document
from automation_pipeline.storage.group_commit import write_before_commit
from automation_pipeline.storage.statements import database_now, database_time, insert_rows
from automation_pipeline.storage.types import BigId, Json, JsonObject, Table, UtcDateTime


class WorkflowLogRow(Table):
    __tablename__ = "workflow_logs"
    __table_args__ = (
        Index(None, "entity_type", "entity_id"),
        Index(None, "workflow", "created_at"),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    workflow: Mapped[str]
    level: Mapped[str]
    entity_type: Mapped[str]
    entity_id: Mapped[str]
    trace_id: Mapped[str] = mapped_column(index=True)
    dagster_run_id: Mapped[str | None]
    step_name: Mapped[str | None]
    message: Mapped[str]
    data: Mapped[JsonObject] = mapped_column(Json)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=database_now())


def write_notes(session: Session, *notes: WorkflowLogEntry) -> None:
    if notes:
        write_before_commit(session, _insert_notes, notes)


def _insert_notes(session: Session, notes: Sequence[WorkflowLogEntry]) -> None:
    now = database_time(session)
    rows = [{**vars(note), "data": masked_document(note.data), "created_at": now} for note in notes]
    insert_rows(session, WorkflowLogRow, rows)


Document = dict[str, object]


@dataclass(frozen=True, kw_only=True)
class LogPage:
    """A filter of lines. An empty field matches all; `until` is exclusive."""

    workflow: str
    entity: tuple[str, str] | None = None
    trace_ids: Sequence[str] = ()
    level: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    limit: int = 200
    offset: int = 0


def log_lines(session: Session, page: LogPage) -> tuple[list[Document], int]:
    chosen = list(_conditions(page))
    rows = session.scalars(
        select(WorkflowLogRow)
        .where(*chosen)
        .order_by(WorkflowLogRow.id)
        .limit(page.limit)
        .offset(page.offset)
    )
    total = session.scalar(select(func.count()).select_from(WorkflowLogRow).where(*chosen))
    return [_document(row) for row in rows], total or 0


def _conditions(page: LogPage) -> Iterator[ColumnElement[bool]]:
    yield WorkflowLogRow.workflow == page.workflow
    if page.entity:
        entity_type, entity_id = page.entity
        yield WorkflowLogRow.entity_type == entity_type
        yield WorkflowLogRow.entity_id == entity_id
    if page.trace_ids:
        yield WorkflowLogRow.trace_id.in_(page.trace_ids)
    if page.level is not None:
        yield WorkflowLogRow.level == page.level
    if page.since is not None:
        yield WorkflowLogRow.created_at >= page.since
    if page.until is not None:
        yield WorkflowLogRow.created_at < page.until


def _document(row: WorkflowLogRow) -> Document:
    return {
        "id": str(row.id),
        "workflow": row.workflow,
        "level": row.level,
        "entity_type": row.entity_type,
        "entity_id": row.entity_id,
        "trace_id": row.trace_id,
        "dagster_run_id": row.dagster_run_id,
        "step_name": row.step_name,
        "message": row.message,
        "data": row.data,
        "created_at": iso(row.created_at),
    }


@dataclass(frozen=True)
class Transition:
    machine: str
    entity_id: str
    from_state: str
    to_state: str
    actor: str
    at: datetime
    reason: str | None = None


class TransitionRow(Table):
    __tablename__ = "state_transitions"
    __table_args__ = (Index(None, "machine", "entity_id"),)

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    machine: Mapped[str]
    entity_id: Mapped[str]
    from_state: Mapped[str]
    to_state: Mapped[str]
    actor: Mapped[str]
    reason: Mapped[str | None]
    at: Mapped[datetime] = mapped_column(UtcDateTime)


def record_transitions(session: Session, transitions: Sequence[Transition]) -> None:
    session.add_all(TransitionRow(**vars(transition)) for transition in transitions)
