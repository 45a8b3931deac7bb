"""The automation that an audit belongs to. Its tables are upstairs: as in our foreign keys, only their names are known
here."""

from sqlalchemy import BigInteger, column, select, table
from sqlalchemy.orm import Session

from automation_pipeline.core.errors import InvalidInputError

_TABLES = {"automation_schedule_id": "automation_schedules", "automation_run_id": "automation_runs"}


def check_linkage(session: Session, links: dict[str, int | None], complaint: str) -> None:
    """InvalidInputError for what does not exist. `links` are named as the columns of the audit."""
    missing = [name for name, row_id in links.items() if row_id is not None and not _exists(session, name, row_id)]
    if missing:
        raise InvalidInputError(complaint, tuple((name, "does not exist") for name in missing))


def _exists(session: Session, name: str, row_id: int) -> bool:
    linked = table(_TABLES[name], column("id", BigInteger))
    return session.scalar(select(linked.c.id).where(linked.c.id == row_id)) is not None
