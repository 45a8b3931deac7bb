"""When a stored schedule is due next."""

import pytest

from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.org_jobs.rules.previews import SchedulePreview
from automation_pipeline.org_jobs.schedules import coming_runs
from automation_pipeline_tests.org_jobs.bench import OTHER_ORG, Bench
from automation_pipeline_tests.org_jobs.scheduling import MINE


def looked(bench: Bench, schedule_id: str, count: int = 10) -> SchedulePreview:
    return coming_runs(
        schedule_id, within=MINE, database=bench.database, clock=bench.clock, count=count
    )


def test_the_first_is_the_one_that_is_stored_and_marked_if_it_is_left_out(org_bench: Bench) -> None:
    schedule_id = org_bench.schedule(jitter_s=600, skip_next_run=True)
    shown = looked(org_bench, schedule_id)
    assert shown.runs[0].effective_for == org_bench.schedule_row(schedule_id).next_run_at
    assert [run.is_skipped for run in shown.runs] == [True] + 9 * [False]


def test_one_that_is_paused_has_none(org_bench: Bench) -> None:
    assert looked(org_bench, org_bench.schedule(state="PAUSED", enabled=False)).runs == ()


def test_that_of_another_organisation_is_not_found(org_bench: Bench) -> None:
    with pytest.raises(NotFoundError):
        looked(org_bench, org_bench.schedule(OTHER_ORG))
