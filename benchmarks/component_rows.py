"""Fills tables like those of a large installation: schedules, recordings, waiting events, and a
long transcript."""

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import func, insert, select, text, update

from automation_pipeline.automation.schedules import create_schedule
from automation_pipeline.automation.tables import RunRow, ScheduleRow
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.events import Event
from automation_pipeline.fiches.tables import CallRecordingRow
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.run_requests import RunRequestRow
from automation_pipeline.transcription.models import Transcript, Word

ZONES = ("Europe/Paris", "UTC", "America/New_York", "Indian/Reunion")
RECORDINGS_A_FICHE = 2
LACKS_A_TRANSCRIPT = 50  # one in so many

# Skips the checks of foreign keys.
QUICKLY = "SET LOCAL session_replication_role = replica"
FICHES = """
INSERT INTO fiche_cache (fiche_id, groupe, sales_date, details_success, raw_data, fetched_at, details_fetched_at,
                         expires_at)
SELECT 'fiche-' || n, 'Groupe ' || n % 20, '2026-05-04', true,
       jsonb_build_object('id', n, 'details', repeat(md5(n::text), 10)), now(), now(), now() + interval '30 days'
FROM generate_series(CAST(:first AS bigint), CAST(:last AS bigint)) AS n
"""
RECORDINGS = """
INSERT INTO recordings (fiche_cache_id, call_id, recording_url, recording_date, start_time, duration_seconds, direction,
                        from_number, to_number, answered, has_transcription, transcription_id, transcription_text)
SELECT f.id, f.fiche_id || '-' || call, 'https://calls.example/' || f.fiche_id || '/' || call, '2026-05-04', now(), 300,
       'out', '+33100000000', '+33600000000', true, lacking.is_not, CASE WHEN lacking.is_not THEN md5(f.fiche_id) END,
       CASE WHEN lacking.is_not THEN repeat(md5(f.fiche_id), 10) END
FROM fiche_cache AS f CROSS JOIN generate_series(1, :calls) AS call
CROSS JOIN LATERAL (SELECT (f.id * :calls + call) % :one_in <> 0 AS is_not) AS lacking
WHERE f.id > :before ORDER BY f.id
"""


def fill_schedules(database: Database, clock: Clock, number: int) -> None:
    """One schedule in twenty fires every five minutes. The others fire daily, weekly or monthly at
    times that are spread over the day."""
    given = {
        "name": "Due",
        "scheduleType": "DAILY",
        "timeOfDay": "09:00",
        "ficheSelection": {"mode": "date_range", "dateRange": "yesterday"},
    }
    create_schedule(given, database=database, clock=clock)
    with database.transaction() as session:
        [first] = session.execute(select(*ScheduleRow.__table__.columns)).mappings()
        session.execute(
            insert(ScheduleRow), [{**first, "id": n, **_timing(n)} for n in range(2, number + 1)]
        )
        session.execute(update(ScheduleRow).where(ScheduleRow.id == 1).values(**_timing(1)))
    analyse(database)


def _timing(number: int) -> dict[str, object]:
    hour, twelfth = divmod(number * 131 % 288, 12)
    zone = ZONES[number // 20 % len(ZONES)]
    found = {
        "schedule_type": "DAILY",
        "timezone": zone,
        "time_of_day": f"{hour:02}:{5 * twelfth:02}",
    }
    match number % 20:
        case 0:
            found |= {
                "schedule_type": "CRON",
                "cron_expression": "*/5 * * * *",
                "time_of_day": None,
            }
        case 1 | 2 | 3 | 4 | 5:
            found |= {"schedule_type": "WEEKLY", "day_of_week": number % 7}
        case 6 | 7:
            found |= {"schedule_type": "MONTHLY", "day_of_month": 1 + number % 28}
    return found


def end_runs(database: Database, now: datetime) -> None:
    """Mark all runs as completed, and their requests as taken."""
    with database.transaction() as session:
        session.execute(update(RunRow).values(status="completed", completed_at=now))
        session.execute(update(RunRequestRow).values(state="taken"))
        session.execute(update(ScheduleRow).values(last_run_status="success"))
    analyse(database)


def fill_recordings(database: Database, number: int) -> int:
    """Add recordings (on PostgreSQL) until there are `number`. Returns the number of their fiches."""
    with database.transaction() as session:
        there = session.scalar(select(func.count(CallRecordingRow.id))) or 0
        first, last = there // RECORDINGS_A_FICHE + 1, number // RECORDINGS_A_FICHE
        session.execute(text(QUICKLY))
        session.execute(text(FICHES), {"first": first, "last": last})
        given = {"before": first - 1, "calls": RECORDINGS_A_FICHE, "one_in": LACKS_A_TRANSCRIPT}
        session.execute(text(RECORDINGS), given)
    analyse(database)
    return last


def analyse(database: Database) -> None:
    """Update the statistics of the planner, which the database otherwise does later by itself."""
    statement = "VACUUM ANALYZE" if database.dialect == "postgresql" else "ANALYZE"
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(statement))


def fill_outbox(database: Database, numbers: Iterable[int], runs: int, now: datetime) -> None:
    with database.transaction() as session:
        enqueue(session, [_event(n, n % runs, now) for n in numbers])
    analyse(database)


def _event(number: int, run: int, at: datetime) -> Event:
    payload = {
        "run_id": run,
        "fiche_id": f"fiche-{number}",
        "call_id": f"call-{number}",
        "status": "completed",
    }
    return Event(
        "bench",
        f"event-{number}",
        "transcription.recording.completed",
        "bench",
        f"run-{run}",
        at,
        payload,
    )


def transcript(words: int, words_a_turn: int = 12) -> Transcript:
    """A transcript as the provider returns it: a spacing after each word, and two alternating
    speakers."""
    messages: list[Word] = []
    for n in range(words):
        speaker, start = f"speaker_{n // words_a_turn % 2}", 0.4 * n
        messages.append(Word(f"mot{n % 900}", start, start + 0.3, "word", speaker))
        messages.append(Word(" ", start + 0.3, start + 0.4, "spacing", speaker))
    return Transcript(
        "bench", "".join(word.text for word in messages), "fra", 0.99, tuple(messages)
    )
