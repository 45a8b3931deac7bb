"""Lines of the workflow log as people read them: in the order in which they were written, page by page."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from automation_pipeline.core.instants import iso
from automation_pipeline.storage.workflow_logs import WorkflowLogRow

Document = dict[str, object]


@dataclass(frozen=True, kw_only=True)
class LogPage:
    """Which lines. An empty field lets everything through; `until` is the first instant that is too late."""

    workflow: str
    entity: tuple[str, str] | None = None
    trace_ids: Sequence[str] = ()
    level: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    limit: int = 200
    offset: int = 0


def log_lines(session: Session, page: LogPage) -> tuple[list[Document], int]:
    """And how many there are without `limit` and `offset`."""
    chosen = list(_conditions(page))
    rows = session.scalars(
        select(WorkflowLogRow).where(*chosen).order_by(WorkflowLogRow.id).limit(page.limit).offset(page.offset)
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
