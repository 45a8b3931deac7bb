"""The next run of a schedule, not left out after all."""

import pytest

from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.org_jobs.schedules import keep_next_run
from automation_pipeline_tests.org_jobs.bench import OTHER_ORG, Bench
from automation_pipeline_tests.org_jobs.scheduling import log_of, world


def test_it_is_taken_back_once(org_bench: Bench) -> None:
    said = {"skip_next_run_reason": "Audit", "skip_next_run_requested_at": org_bench.now}
    schedule_id = org_bench.schedule(skip_next_run=True, **said)
    shown = keep_next_run(schedule_id, **world(org_bench))
    assert (shown.skip_next_run, shown.skip_next_run_reason, shown.skip_next_run_requested_at) == (
        False,
        None,
        None,
    )
    assert keep_next_run(schedule_id, **world(org_bench)) == shown
    assert log_of(org_bench, schedule_id) == ["keep_next"]


def test_that_of_another_organisation_is_not_found(org_bench: Bench) -> None:
    theirs = org_bench.schedule(OTHER_ORG, skip_next_run=True)
    with pytest.raises(NotFoundError):
        keep_next_run(theirs, **world(org_bench))
    assert org_bench.schedule_row(theirs).skip_next_run
