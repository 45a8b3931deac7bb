"""The next run of a schedule, left out."""

import pytest

from automation_pipeline.core.errors import ConflictError, NotFoundError
from automation_pipeline.org_jobs.schedules import skip_next_run
from automation_pipeline_tests.org_jobs.bench import OTHER_ORG, Bench
from automation_pipeline_tests.org_jobs.scheduling import log_of, world


def test_it_is_wanted_with_a_reason_that_others_see(org_bench: Bench) -> None:
    schedule_id = org_bench.schedule()
    shown = skip_next_run(schedule_id, reason="Audit", **world(org_bench))
    assert (shown.skip_next_run, shown.skip_next_run_reason) == (True, "Audit")
    assert (shown.skip_next_run_requested_at, shown.version) == (org_bench.now, 2)
    assert skip_next_run(schedule_id, **world(org_bench)) == shown
    assert (
        skip_next_run(schedule_id, reason="Fair", **world(org_bench)).skip_next_run_reason == "Fair"
    )
    assert log_of(org_bench, schedule_id) == ["skip_next", "skip_next"]


def test_one_that_is_not_due_has_none_to_leave_out(org_bench: Bench) -> None:
    with pytest.raises(ConflictError, match="PAUSED"):
        skip_next_run(org_bench.schedule(state="PAUSED", enabled=False), **world(org_bench))


def test_that_of_another_organisation_is_not_found(org_bench: Bench) -> None:
    theirs = org_bench.schedule(OTHER_ORG)
    with pytest.raises(NotFoundError):
        skip_next_run(theirs, **world(org_bench))
    assert not org_bench.schedule_row(theirs).skip_next_run
