"""What became of the due times of a schedule, newest first."""

from datetime import timedelta

from automation_pipeline.automation.queries.due import decided_occurrences
from automation_pipeline.automation.runs import request_run
from automation_pipeline.automation.tables import OccurrenceRow
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.factories import a_schedule


def test_the_last_due_times_have_their_run_or_the_reason(
    database: Database, clock: StandingClock
) -> None:
    mine, other = a_schedule(database, clock), a_schedule(database, clock)
    run, now = request_run(mine.id, database=database, clock=clock), clock.now()
    decided = [
        (mine, 2, None, "skipped"),
        (mine, 1, run.id, None),
        (mine, 3, None, "old"),
        (other, 0, None, "other"),
    ]
    with database.transaction() as session:
        session.add_all(
            OccurrenceRow(
                schedule_id=schedule.id,
                due_at=now - timedelta(days=days),
                run_id=run_id,
                not_run_because=why,
                decided_at=now,
            )
            for schedule, days, run_id, why in decided
        )
    with database.reading() as session:
        result = decided_occurrences(session, mine.id, limit=2)
    assert [(o.due_at, o.run_id, o.run_status, o.not_run_because) for o in result] == [
        (now - timedelta(days=1), run.id, "pending", None),
        (now - timedelta(days=2), None, None, "skipped"),
    ]
