"""A schedule that is run by hand."""

from datetime import timedelta
from typing import Any

import pytest

from automation_pipeline.core.errors import ConflictError, InvalidInputError, NotFoundError
from automation_pipeline_tests.org_jobs.bench import ACTOR, OTHER_ORG, Bench
from automation_pipeline_tests.org_jobs.scheduling import created, log_of, run_now

CLOSED = {"execution_window_start": "22:00", "execution_window_end": "06:00"}


def test_its_job_is_made_beside_what_the_cron_says(org_bench: Bench) -> None:
    schedule = created(org_bench, priority=2, retryPolicy={"maxRetries": 4})
    made = run_now(org_bench, schedule.id)
    (fire,) = org_bench.fires(schedule.id)
    assert (fire.id, fire.trigger, fire.outcome, fire.actor) == (
        made.fire_id,
        "MANUAL",
        "DISPATCHED",
        ACTOR,
    )
    assert (fire.scheduled_for, fire.effective_for) == (org_bench.now, org_bench.now)
    job, run = org_bench.job_row(made.job_id), org_bench.run_row(made.job_id)
    assert (job.schedule_fire_id, job.created_by, job.priority, job.type) == (
        fire.id,
        ACTOR,
        2,
        "HTTPS_CALL",
    )
    assert (run.status, run.max_attempts, run.line) == ("pending", 5, schedule.id)
    row = org_bench.schedule_row(schedule.id)
    assert (row.run_count, row.last_run_job_id, row.last_run_at) == (1, made.job_id, org_bench.now)
    assert (row.last_dispatch_status, row.last_scheduled_for) == ("dispatched", None)
    assert (row.next_run_at, row.next_scheduled_for, row.version) == (
        schedule.next_run_at,
        schedule.next_scheduled_for,
        1,
    )
    assert log_of(org_bench, schedule.id) == ["create", "run_now"]
    assert org_bench.events("schedule.fired")[0].payload["trigger"] == "MANUAL"


def test_the_same_key_is_the_same_job(org_bench: Bench) -> None:
    schedule_id, other = org_bench.schedule(), org_bench.schedule()
    first = run_now(org_bench, schedule_id, client_key="k")
    assert run_now(org_bench, schedule_id, client_key="k") == first
    assert run_now(org_bench, other, client_key="k") != first
    assert len(org_bench.jobs(schedule_id)) == 1


@pytest.mark.parametrize(
    "columns",
    [
        {"state": "COMPLETED"},
        {"state": "INVALID_CRON", "timezone": "Gone/City"},
        {"state": "INVALID_CRON", "cron_expression": "gone"},
    ],
)
def test_one_that_is_over_or_cannot_be_read_is_not_run(
    org_bench: Bench, columns: dict[str, Any]
) -> None:
    schedule_id = org_bench.schedule(**columns)
    with pytest.raises(ConflictError, match=columns["state"]):
        run_now(org_bench, schedule_id)
    assert org_bench.jobs(schedule_id) == []


def test_a_paused_one_is_run_and_stays_paused(org_bench: Bench) -> None:
    schedule_id = org_bench.schedule(state="PAUSED", enabled=False)
    run_now(org_bench, schedule_id)
    row = org_bench.schedule_row(schedule_id)
    assert (row.state, row.next_run_at, row.run_count) == ("PAUSED", None, 1)


def test_a_payload_takes_the_place_of_the_schedules(org_bench: Bench) -> None:
    schedule = created(org_bench)
    made = run_now(org_bench, schedule.id, payload={"url": "https://example.org/other"})
    assert org_bench.job_row(made.job_id).payload["url"] == "https://example.org/other"
    with pytest.raises(InvalidInputError) as refused:
        run_now(org_bench, schedule.id, payload={"url": 3})
    assert [field for field, _ in refused.value.fields] == ["payload.url"]


def test_outside_its_window_it_is_refused_unless_that_is_ignored(org_bench: Bench) -> None:
    schedule_id = org_bench.schedule(**CLOSED)
    with pytest.raises(ConflictError, match="opens at 2026-05-04T22:00"):
        run_now(org_bench, schedule_id)
    assert org_bench.jobs() == []
    forced = run_now(org_bench, schedule_id, ignore_window=True)
    assert org_bench.job_row(forced.job_id).start_window is None
    org_bench.set_run(
        org_bench.run_row(forced.job_id).id, status="cancelled", finished_at=org_bench.now
    )
    org_bench.clock.pass_time(timedelta(hours=12))
    inside = run_now(org_bench, schedule_id)
    assert org_bench.job_row(inside.job_id).start_window == {
        "start": "22:00",
        "end": "06:00",
        "timezone": "UTC",
    }


def test_of_what_is_out_of_use_nothing_is_run(org_bench: Bench) -> None:
    server = org_bench.server(is_enabled=False)
    with pytest.raises(ConflictError, match=f"Server {server} is not enabled"):
        run_now(org_bench, org_bench.schedule(server_instance_id=server))
    org_bench.organisation(suspended_at=org_bench.now)
    with pytest.raises(ConflictError, match="'acme' is suspended"):
        run_now(org_bench, org_bench.schedule())
    assert org_bench.jobs() == []


def test_a_job_that_is_not_over_is_in_the_way_and_named(org_bench: Bench) -> None:
    schedule_id = org_bench.schedule()
    first = run_now(org_bench, schedule_id)
    with pytest.raises(ConflictError, match=f"Job {first.job_id} "):
        run_now(org_bench, schedule_id)
    assert (org_bench.schedule_row(schedule_id).run_count, len(org_bench.fires(schedule_id))) == (
        1,
        1,
    )


@pytest.mark.parametrize(
    ("policy", "standing", "is_asked"),
    [
        ("ALLOW_ALL", ("running", "pending"), False),
        ("BUFFER_ALL", ("running", "pending"), False),
        ("CANCEL_OTHER", ("running", "cancelled"), True),
        ("TERMINATE_OTHER", ("cancelled", "cancelled"), False),
    ],
)
def test_others_go_on_wait_or_give_way_by_the_overlap_policy(
    org_bench: Bench, policy: str, standing: tuple[str, str], is_asked: bool
) -> None:
    schedule_id = org_bench.schedule(overlap_policy=policy)
    at_work, waiting = (
        org_bench.running_job(schedule_id=schedule_id),
        org_bench.job(schedule_id=schedule_id),
    )
    made = run_now(org_bench, schedule_id)
    assert (org_bench.job_row(at_work).status, org_bench.job_row(waiting).status) == standing
    assert (org_bench.run_row(at_work).cancel_requested_at is not None) == is_asked
    run = org_bench.run_row(made.job_id)
    assert (run.status, run.line) == ("pending", None if policy == "ALLOW_ALL" else schedule_id)


@pytest.mark.parametrize(
    "columns", [{"job_type": "GONE"}, {"job_type": "HTTPS_CALL", "payload": {"url": 3}}]
)
def test_one_whose_type_or_payload_means_nothing_any_more_says_so(
    org_bench: Bench, columns: dict[str, Any]
) -> None:
    schedule_id = org_bench.schedule(**columns)
    with pytest.raises(ConflictError, match="cannot be run as it is"):
        run_now(org_bench, schedule_id)


def test_that_of_another_organisation_is_not_found(org_bench: Bench) -> None:
    theirs = org_bench.schedule(OTHER_ORG)
    with pytest.raises(NotFoundError, match="not found"):
        run_now(org_bench, theirs)
    assert org_bench.jobs() == []
