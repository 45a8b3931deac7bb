"""A run whose worker failed for good rests a while, and says why; nobody is put off who works."""

from datetime import timedelta

import pytest

from automation_pipeline.pricing.queries.runs import runs_without_worker
from automation_pipeline.pricing.runs import REST_SECONDS, postpone_failed_run
from automation_pipeline.storage.clock import database_now, database_time
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.pricing.kept import a_rule, a_run, change_run, run_row

WHY = "SHOP_API_TOKEN is not set."


def test_it_is_gone_on_with_when_the_rest_is_over(database: Database, clock: StandingClock) -> None:
    run_id = a_run(database, a_rule(database, clock), "QUEUED", clock.now(), ["QUEUED"])
    assert postpone_failed_run(run_id, WHY, database=database)
    with database.transaction() as session:
        assert runs_without_worker(session) == []
        now = database_time(session)
    row = run_row(database, run_id)
    assert row.error_message == WHY
    assert row.resume_at
    assert now < row.resume_at <= now + timedelta(seconds=REST_SECONDS)
    change_run(database, run_id, resume_at=database_now(-1.0))
    with database.transaction() as session:
        assert runs_without_worker(session) == [run_id]


@pytest.mark.parametrize(
    ("status", "fields"),
    [
        ("APPLIED", {}),
        ("PREVIEW", {}),
        ("APPLYING", {"lease_until": database_now(60.0)}),
        ("QUEUED", {"resume_at": database_now(9000.0)}),
    ],
)
def test_who_is_done_or_at_work_or_waits_already_is_let_be(
    database: Database, clock: StandingClock, status: str, fields: dict[str, object]
) -> None:
    run_id = a_run(database, a_rule(database, clock), status, clock.now())
    if fields:
        change_run(database, run_id, **fields)
    before = run_row(database, run_id).resume_at
    assert not postpone_failed_run(run_id, WHY, database=database)
    row = run_row(database, run_id)
    assert (row.resume_at, row.error_message) == (before, None)


def test_what_was_only_asked_for_is_put_off_too(database: Database, clock: StandingClock) -> None:
    run_id = a_run(database, a_rule(database, clock), "PREVIEW", clock.now(), wish="apply")
    assert postpone_failed_run(run_id, WHY, database=database)
