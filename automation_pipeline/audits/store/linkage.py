"""The automation that an audit belongs to. Its tables are upstairs: as in our foreign keys, only their names are known
here."""

from sqlalchemy import BigInteger, column, select, table
from sqlalchemy.orm import Session

from automation_pipeline.core.errors import InvalidInputError

_TABLES = {"automation_schedule_id": "automation_schedules", "automation_run_id": "automation_runs"}


def check_linkage(session: Session, links: dict[str, int | None], complaint: str) -> None:
    """InvalidInputError for what does not exist, and for a run of another schedule. `links` are named as the columns of
    the audit."""
    missing = [name for name, row_id in links.items() if row_id is not None and not _exists(session, name, row_id)]
    if missing:
        raise InvalidInputError(complaint, tuple((name, "does not exist") for name in missing))
    schedule_id, run_id = links.get("automation_schedule_id"), links.get("automation_run_id")
    if schedule_id is not None and run_id is not None and _schedule_of(session, run_id) != schedule_id:
        raise InvalidInputError(complaint, (("automation_run_id", "belongs to another schedule"),))


def _exists(session: Session, name: str, row_id: int) -> bool:
    linked = table(_TABLES[name], column("id", BigInteger))
    return session.scalar(select(linked.c.id).where(linked.c.id == row_id)) is not None


def _schedule_of(session: Session, run_id: int) -> int | None:
    runs = table(_TABLES["automation_run_id"], column("id", BigInteger), column("schedule_id", BigInteger))
    return session.scalar(select(runs.c.schedule_id).where(runs.c.id == run_id))
