"""What the gate reads: recordings that lack a transcript, found without a look at those that have
theirs."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import event, insert, text

from automation_pipeline.automation.queries.ledger import untranscribed
from automation_pipeline.fiches.tables import CallRecordingRow, FicheCacheRow
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.statements import is_postgres
from automation_pipeline_tests.conftest import StandingClock


def mirrored(
    database: Database, clock: StandingClock, *, fiches: int, calls: int, lacking: int
) -> None:
    """Fiches by their numbers, each with so many calls. Of every tenth, so many lack a transcript,
    and one more that has vanished lacks its own."""
    now = clock.now()
    numbers = range(1, fiches + 1)
    lists = {"raw_data": {}, "fetched_at": now, "expires_at": now + timedelta(days=30)}

    def said(number: int, of_it: int) -> dict[str, object]:
        is_whole, is_gone = number % 10 > 0, number % 10 == 0 == of_it
        return {
            "has_transcription": is_whole or 0 < of_it < calls - lacking,
            "vanished_at": now if is_gone else None,
        }

    call = {
        "recording_url": "https://calls.example/1", "start_time": now, "duration_seconds": 60, "direction": "out",
        "from_number": "1", "to_number": "2", "answered": True,
    }  # fmt: skip
    received = [
        {**call, "fiche_cache_id": n, "call_id": f"{n}-{m}", **said(n, m)}
        for n in numbers
        for m in range(calls)
    ]
    with database.transaction() as session:
        session.execute(
            insert(FicheCacheRow), [{"id": n, "fiche_id": str(n), **lists} for n in numbers]
        )
        session.execute(insert(CallRecordingRow), received)


def planned(session: Session, fiche_ids: Sequence[str]) -> str:
    """How the database goes about it."""
    connection = session.connection()
    asked: list[tuple[str, Any]] = []

    def keep(_connection: object, _cursor: object, statement: str, given: Any, *_: object) -> None:
        asked.append((statement, given))

    event.listen(connection, "before_cursor_execute", keep)
    untranscribed(session, fiche_ids)
    event.remove(connection, "before_cursor_execute", keep)
    [(statement, given)] = asked
    explain = "EXPLAIN" if is_postgres(session) else "EXPLAIN QUERY PLAN"
    return str(connection.exec_driver_sql(f"{explain} {statement}", given).all())


def test_every_fiche_has_its_number_of_missing_transcripts(
    database: Database, clock: StandingClock
) -> None:
    mirrored(database, clock, fiches=20, calls=4, lacking=2)
    with database.reading() as session:
        found = dict(untranscribed(session, ["9", "10", "20", "99"]))
    assert found == {"9": 0, "10": 2, "20": 2}


def test_recordings_with_a_transcript_are_not_looked_at(
    database: Database, clock: StandingClock
) -> None:
    mirrored(database, clock, fiches=2000, calls=4, lacking=1)
    fiche_ids = [str(n) for n in range(1, 51)]
    with database.transaction() as session:
        session.execute(text("ANALYZE"))
    with database.reading() as session:
        plan = planned(session, fiche_ids)
    assert "ix_recordings_untranscribed" in plan
    assert "uq_recordings" not in plan
