"""A schedule that is taken away."""

import pytest

from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.org_jobs.queries.schedules import fires_of, get_schedule, list_schedules
from automation_pipeline.org_jobs.schedules import delete_schedule
from automation_pipeline_tests.org_jobs.bench import OTHER_ORG, Bench
from automation_pipeline_tests.org_jobs.scheduling import MINE, log_of, world


@pytest.mark.parametrize("state", ["ACTIVE", "PAUSED", "INVALID_CRON", "COMPLETED"])
def test_it_is_not_found_afterwards_but_its_fires_are(org_bench: Bench, state: str) -> None:
    schedule_id = org_bench.schedule(state=state, paused_until=org_bench.now)
    org_bench.fire(schedule_id)
    delete_schedule(schedule_id, **world(org_bench))
    row = org_bench.schedule_row(schedule_id)
    assert (row.deleted_at, row.next_run_at, row.paused_until) == (org_bench.now, None, None)
    assert row.state == ("PAUSED" if state == "ACTIVE" else state)
    with org_bench.database.reading() as session:
        assert list_schedules(session, MINE, limit=10, offset=0) == []
        assert len(fires_of(session, schedule_id, MINE, 10)) == 1
        with pytest.raises(NotFoundError):
            get_schedule(session, schedule_id, MINE)
    with pytest.raises(NotFoundError):
        delete_schedule(schedule_id, **world(org_bench))
    assert (log_of(org_bench, schedule_id), len(org_bench.events("schedule.deleted"))) == (
        ["delete"],
        1,
    )


def test_what_waits_is_cancelled_and_what_is_at_work_goes_on(org_bench: Bench) -> None:
    schedule_id = org_bench.schedule(last_run_job_id=None)
    waiting, at_work = (
        org_bench.job(schedule_id=schedule_id),
        org_bench.running_job(schedule_id=schedule_id),
    )
    other = org_bench.job(schedule_id=org_bench.schedule())
    delete_schedule(schedule_id, **world(org_bench))
    assert [org_bench.job_row(one).status for one in (waiting, at_work, other)] == [
        "cancelled",
        "running",
        "pending",
    ]
    assert org_bench.run_row(waiting).error == "Its schedule was deleted."


def test_a_time_that_was_due_is_dropped_with_a_note(org_bench: Bench) -> None:
    schedule_id = org_bench.schedule(next_run_at=org_bench.now, next_scheduled_for=org_bench.now)
    delete_schedule(schedule_id, **world(org_bench))
    assert log_of(org_bench, schedule_id) == ["drop_due", "delete"]


def test_that_of_another_organisation_is_not_found(org_bench: Bench) -> None:
    theirs = org_bench.schedule(OTHER_ORG)
    with pytest.raises(NotFoundError):
        delete_schedule(theirs, **world(org_bench))
    assert org_bench.schedule_row(theirs).deleted_at is None
