"""A batch whose last items end at the same moment, in several processes, ends once."""

from sqlalchemy.orm import Session

from automation_pipeline.audits.models.audits import RequestedAudit
from automation_pipeline.audits.queries.requests import add_batch, batch_summary
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.audits.bench import Bench
from automation_pipeline_tests.audits.processes import end_items
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.processes import at_once


def test_items_that_end_in_several_processes_are_each_counted_once(
    database: Database, database_url: str, clock: StandingClock
) -> None:
    bench = Bench(database, clock)
    config = bench.configure(steps=1)
    items = [RequestedAudit(f"19004{number:02}", f"item {number}") for number in range(20)]
    with database.transaction() as session:
        add_batch(session, "batch", config, items, clock.now())
    names = [item.tracking_id for item in items]
    lasts = at_once(
        end_items, *((database_url, order) for order in (names, names[::-1], names[7:], names[:12]))
    )
    with database.reading() as session:
        assert counted(session) == (20, 0, True)
    assert sum(lasts) == 1


def counted(session: Session) -> tuple[int, int, bool]:
    batch = batch_summary(session, "batch")
    return batch.succeeded, batch.failed, batch.completed_at is not None
