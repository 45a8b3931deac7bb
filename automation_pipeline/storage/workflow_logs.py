"""What every workflow writes down as it goes, correlated by the thing it is about and by its run."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Index, insert
from sqlalchemy.orm import Mapped, Session, mapped_column

from automation_pipeline.core.masking import masked_document
from automation_pipeline.core.notes import Note
from automation_pipeline.storage.group_commit import write_at_the_end
from automation_pipeline.storage.instants import database_now, database_time
from automation_pipeline.storage.metadata import Table
from automation_pipeline.storage.prepared import execute_each
from automation_pipeline.storage.types import BigId, Json, JsonObject, UtcDateTime


class WorkflowLogRow(Table):
    __tablename__ = "workflow_logs"
    __table_args__ = (Index(None, "entity_type", "entity_id"), Index(None, "workflow", "created_at"))

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


_ADD = insert(WorkflowLogRow)


def write_notes(session: Session, *notes: Note) -> None:
    if notes:
        write_at_the_end(session, _add, notes)


def _add(session: Session, notes: Sequence[Note]) -> None:
    now = database_time(session)
    rows = [{**vars(note), "data": masked_document(note.data), "created_at": now} for note in notes]
    execute_each(session, _ADD, rows)
