"""The files in which Dagster keeps the events of one run each, on SQLite: emptied when the run is long over."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from automation_pipeline.core.logs import log

_BUSY_SECONDS = 5.0
_log = log(__name__)


def has_old_events(path: str, kept: Sequence[str]) -> bool:
    """Whether there are events of other kinds than those that are kept."""
    with _opened(path) as events:
        return events is not None and events.execute(f"SELECT 1 {_old(kept)} LIMIT 1", kept).fetchone() is not None


def empty_file(path: str, kept: Sequence[str]) -> int:
    """How many events went. The file stays, and small: Dagster's processes remember that it is there."""
    with _opened(path) as events:
        if events is None:
            return 0
        try:
            gone = events.execute(f"DELETE {_old(kept)}", kept).rowcount
            events.execute("VACUUM")
        except sqlite3.OperationalError as error:  # somebody is reading it: there is another day
            _log.warning("Events of a run are kept for another day", file=Path(path).name, error=str(error))
            return 0
        return gone


def remove_file(path: str) -> None:
    """With what SQLite has put beside it."""
    for name in (path, f"{path}-wal", f"{path}-shm"):
        with suppress(FileNotFoundError):
            Path(name).unlink()


def _old(kept: Sequence[str]) -> str:
    marks = ", ".join("?" * len(kept))
    kind = f"dagster_event_type IS NULL OR dagster_event_type NOT IN ({marks})"
    return f"FROM event_logs WHERE asset_key IS NULL AND ({kind})"


@contextmanager
def _opened(path: str) -> Iterator[sqlite3.Connection | None]:
    """None where there is no such file: it is not made."""
    if not Path(path).exists():
        yield None
        return
    address = f"{Path(path).as_uri()}?mode=rw"
    with closing(sqlite3.connect(address, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)) as events:
        yield events
