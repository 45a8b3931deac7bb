"""The log of a run: what is written down with a line is masked."""

from sqlalchemy import select

from automation_pipeline.automation.queries.runs import write_log
from automation_pipeline.automation.tables import LogRow
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.factories import an_open_run


def test_details_of_log_lines_are_masked(database: Database, clock: StandingClock) -> None:
    run_id = an_open_run(database, clock).run_id
    details = {
        "apiKey": "hush",
        "prospectNom": "Dupont",
        "url": "https://h.test/?sig=hush",
        "total_tokens": 12,
    }
    with database.transaction() as session:
        write_log(session, run_id, clock.now(), "info", "Told", details)
        write_log(session, run_id, clock.now(), "info", "Plain")
    with database.reading() as session:
        kept = dict(session.execute(select(LogRow.message, LogRow.details)).tuples().all())
    masked = {
        "apiKey": "[masked]",
        "prospectNom": "[masked]",
        "url": "https://h.test/?[masked]",
        "total_tokens": 12,
    }
    assert (kept["Told"], kept["Plain"]) == (masked, {})
