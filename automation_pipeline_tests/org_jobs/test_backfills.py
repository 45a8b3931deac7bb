"""Backfills of organisations' schedules."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import event

from automation_pipeline.core.errors import ConflictError, InvalidInputError, NotFoundError
from automation_pipeline.org_jobs.fires import backfill_schedule, cancel_backfill
from automation_pipeline.org_jobs.models.jobs import (
    attempt_cancelled,
    attempt_failed,
    attempt_succeeded,
)
from automation_pipeline.org_jobs.models.organisations import ALL_ORGANISATIONS, OrgScope
from automation_pipeline.org_jobs.queries.attempts import end_attempts
from automation_pipeline.org_jobs.queries.fires import get_backfill, list_backfills
from automation_pipeline.org_jobs.rules.due import Backfill
from automation_pipeline_tests.org_jobs.data import ACTOR, ORG, OTHER_ORG, OrgJobsData

PERIOD = {"from": "2026-05-01T00:00:00Z", "until": "2026-05-03T12:00:00Z"}


def at(day: int, hour: int = 2) -> datetime:
    return datetime(2026, 5, day, hour, tzinfo=UTC)


def backfill(
    data: OrgJobsData, schedule_id: str, within: OrgScope = ALL_ORGANISATIONS, **given: object
) -> Backfill:
    return backfill_schedule(schedule_id, PERIOD | given, **data.context(within))


def stored(data: OrgJobsData, created: Backfill) -> Backfill:
    with data.database.reading() as session:
        return get_backfill(session, created.id or 0, OrgScope(ORG))


def end_job(data: OrgJobsData, job_id: int, *, succeeds: bool) -> None:
    """End the last attempt of the job."""
    run = data.run_row(job_id)
    data.set_run(run.id, status="running", started_at=data.now, attempt_no=run.max_attempts)
    with data.database.transaction() as session:
        end_attempts(
            session,
            {run.id: attempt_succeeded() if succeeds else attempt_failed("It broke.")},
            "test",
            data.now,
        )


def test_each_due_time_gets_its_job(data: OrgJobsData) -> None:
    host = data.host()
    server = data.server(host_id=host)
    schedule = data.schedule(server_instance_id=server, payload={"message": "x"}, priority=4)
    created = backfill(data, schedule, OrgScope(ORG))
    assert created == stored(data, created)
    assert (created.status, created.total, created.pending, created.behaviour, created.times) == (
        "running",
        3,
        3,
        "none",
        (),
    )
    fires, jobs = data.fires(schedule), data.jobs(schedule)
    assert [(one.trigger, one.outcome, one.batch_id, one.actor) for one in fires] == [
        ("BACKFILL", "DISPATCHED", created.id, ACTOR)
    ] * 3
    assert (
        [one.scheduled_for for one in jobs]
        == [one.scheduled_for for one in fires]
        == [at(1), at(2), at(3)]
    )
    assert {
        (one.batch_id, one.priority, one.server_instance_id, one.created_by) for one in jobs
    } == {(created.id, 5, server, ACTOR)}
    runs = [data.run_row(one.id) for one in jobs]
    assert {(one.line, one.host_id, one.next_attempt_at) for one in runs} == {
        (f"backfill-{created.id}", host, None)
    }
    row = data.schedule_row(schedule)
    assert (row.run_count, row.last_run_job_id, row.next_scheduled_for) == (3, None, at(5))
    assert len(data.events("schedule.fired")) == 3
    assert data.audit(schedule)[-1].after["batchId"] == str(created.id)


def test_serial_jobs_expire_later(data: OrgJobsData) -> None:
    serial = data.schedule(job_type="HTTPS_CALL", payload={"url": "https://example.com/"})
    parallel = data.schedule(
        job_type="HTTPS_CALL", payload={"url": "https://example.com/"}, overlap_policy="ALLOW_ALL"
    )
    for schedule in (serial, parallel):
        backfill(data, schedule)
    first, second, _ = (one.expires_at - data.now for one in data.jobs(serial))
    assert first == timedelta(hours=24) < second
    assert {one.expires_at - data.now for one in data.jobs(parallel)} == {first}
    assert {data.run_row(one.id).line for one in data.jobs(parallel)} == {None}


def test_dry_run_writes_nothing_and_gives_reasons(data: OrgJobsData) -> None:
    schedule = data.schedule()
    data.fire(schedule, at(2))
    data.job(schedule_id=schedule, fire_id=data.fires(schedule)[0].id, scheduled_for=at(2))
    result = backfill(data, schedule, dryRun=True)
    assert (result.id, result.status, result.total, result.dry_run) == (None, None, 2, True)
    assert [(one.scheduled_for, one.left_out) for one in result.times] == [
        (at(1), None), (at(2), "at_work"), (at(3), None),
    ]  # fmt: skip
    assert len(data.jobs(schedule)) == len(data.fires(schedule)) == 1
    assert data.audit(schedule) == data.events() == []
    with data.database.reading() as session:
        assert list_backfills(session, ALL_ORGANISATIONS, limit=10, offset=0) == []


def test_second_backfill_of_a_period_repeats_nothing(data: OrgJobsData) -> None:
    schedule = data.schedule()
    backfill(data, schedule)
    again = backfill(data, schedule)
    assert (again.total, again.status, again.finished_at) == (0, "completed", data.now)
    assert len(data.jobs(schedule)) == 3


def test_the_reprocess_behaviour_decides_which_due_times_are_repeated(data: OrgJobsData) -> None:
    schedule = data.schedule(auto_pause_after=0)
    backfill(data, schedule)
    one, two, three = (job.id for job in data.jobs(schedule))
    end_job(data, one, succeeds=True)
    end_job(data, two, succeeds=False)
    assert backfill(data, schedule).total == 0
    failed_ones = backfill(data, schedule, behaviour="failed")
    assert [job.scheduled_for for job in data.jobs(schedule)[3:]] == [at(2)]
    end_job(data, data.jobs(schedule)[3].id, succeeds=True)
    assert backfill(data, schedule, behaviour="failed").total == 0
    end_job(data, three, succeeds=True)
    everything = backfill(data, schedule, behaviour="completed")
    assert (failed_ones.total, everything.total) == (1, 3)


def test_backfill_ends_with_its_last_job(data: OrgJobsData) -> None:
    schedule = data.schedule(auto_pause_after=0)
    created = backfill(data, schedule)
    one, two, three = (job.id for job in data.jobs(schedule))
    end_job(data, one, succeeds=True)
    end_job(data, two, succeeds=False)
    assert (stored(data, created).status, stored(data, created).pending) == ("running", 1)
    end_job(data, three, succeeds=True)
    over = stored(data, created)
    assert (over.status, over.success, over.failed, over.pending) == (
        "completed_with_failures",
        2,
        1,
        0,
    )
    assert over.finished_at == data.now


def test_a_backfill_over_the_limit_is_refused_as_a_whole(data: OrgJobsData) -> None:
    schedule = data.schedule()
    for dry in (True, False):
        with pytest.raises(InvalidInputError) as refused:
            backfill(data, schedule, limit=2, dryRun=dry)
        [(field, why)] = refused.value.fields
        assert (field, "there are 3 due times" in why) == ("limit", True)
    assert data.jobs(schedule) == []


def test_due_times_of_the_dispatcher_are_left_out(data: OrgJobsData) -> None:
    schedule = data.schedule(next_run_at=at(3), next_scheduled_for=at(3))
    assert backfill(data, schedule).total == 2
    data.set_schedule(schedule, state="PAUSED", next_run_at=None, next_scheduled_for=None)
    assert backfill(data, schedule).total == 1


def test_backfill_jobs_wait_for_the_window(data: OrgJobsData) -> None:
    schedule = data.schedule(execution_window_start="02:00", execution_window_end="04:00")
    backfill(data, schedule)
    [first, *_] = data.jobs(schedule)
    assert data.run_row(first.id).next_attempt_at == at(5)
    assert first.start_window == {"start": "02:00", "end": "04:00", "timezone": "UTC"}


@pytest.mark.parametrize("columns", [{"timezone": "Europe/Atlantis"}, {"job_type": "GONE"}])
def test_backfill_of_an_invalid_schedule_is_refused(
    columns: dict[str, object], data: OrgJobsData
) -> None:
    schedule = data.schedule()
    data.set_schedule(schedule, **columns)
    with pytest.raises(ConflictError, match="correct it first"):
        backfill(data, schedule)


def test_backfill_of_a_suspended_organisation_is_refused(data: OrgJobsData) -> None:
    schedule = data.schedule()
    data.organisation(suspended_at=data.now)
    with pytest.raises(ConflictError, match="Organisation 'acme' is suspended: resume it first"):
        backfill(data, schedule)
    assert data.jobs() == []


def test_schedule_of_another_organisation_is_not_found(data: OrgJobsData) -> None:
    theirs = data.schedule(OTHER_ORG)
    deleted = data.schedule(deleted_at=data.now)
    for schedule in (theirs, deleted, "nothing"):
        with pytest.raises(NotFoundError, match=f"Schedule {schedule} not found"):
            backfill(data, schedule, OrgScope(ORG))
    assert data.jobs() == []


def test_number_of_queries_is_constant(data: OrgJobsData) -> None:
    counts: list[int] = []
    for until in ("2026-05-01T06:00:00Z", "2026-05-02T06:00:00Z"):
        schedule = data.schedule(cron_expression="*/10 * * * *")
        statements: list[str] = []

        def record(*given: object, statements: list[str] = statements) -> None:
            statements.append(str(given[2]))

        event.listen(data.database.engine, "before_cursor_execute", record)
        backfill(data, schedule, until=until)
        event.remove(data.database.engine, "before_cursor_execute", record)
        counts.append(len(statements))
    assert counts[0] == counts[1]


def make_backfill(data: OrgJobsData, org_id: str = ORG, **given: object) -> tuple[int, list[int]]:
    """Create a backfill; return its id and those of its jobs."""
    schedule = data.schedule(org_id)
    created = backfill(data, schedule, **given)
    return created.id or 0, [job.id for job in data.jobs(schedule)]


def cancel(
    data: OrgJobsData,
    batch_id: int,
    within: OrgScope = ALL_ORGANISATIONS,
    reason: str | None = None,
) -> Backfill:
    return cancel_backfill(batch_id, **data.context(within, actor="user:2"), reason=reason)


def test_waiting_jobs_are_cancelled_and_running_jobs_are_asked_to_stop(data: OrgJobsData) -> None:
    batch_id, (one, two, three) = make_backfill(data)
    running = data.run_row(one).id
    data.set_run(running, status="running", started_at=data.now)
    other = data.job()
    over = cancel(data, batch_id, OrgScope(ORG), "Wrong period.")
    assert (over.status, over.running, over.cancelled, over.finished_at) == (
        "cancelled",
        1,
        2,
        data.now,
    )
    asked = data.run_by_id(running)
    assert (asked.status, asked.cancel_requested_at, asked.cancelled_by) == (
        "running",
        data.now,
        "user:2",
    )
    assert asked.cancel_reason == "Its backfill was cancelled. Wrong period."
    assert {data.run_row(job).status for job in (two, three)} == {"cancelled"}
    assert data.run_row(other).status == "pending"
    [entry] = data.audit(str(batch_id))
    assert (entry.action, entry.entity, entry.reason) == ("cancel", "backfill", "Wrong period.")


def test_a_cancelled_backfill_stays_cancelled_when_its_last_job_ends(data: OrgJobsData) -> None:
    batch_id, (one, *_) = make_backfill(data)
    running = data.run_row(one).id
    data.set_run(running, status="running", started_at=data.now)
    first = cancel(data, batch_id)
    with data.database.transaction() as session:
        end_attempts(session, {running: attempt_cancelled("Stopped.")}, "test", data.now)
    assert cancel(data, batch_id) == first.model_copy(update={"running": 0, "cancelled": 3})
    assert len(data.audit(str(batch_id))) == 1


def test_an_ended_backfill_is_not_cancelled(data: OrgJobsData) -> None:
    batch_id, jobs = make_backfill(data, until="2026-05-01T00:00:00Z")
    assert jobs == []
    with pytest.raises(ConflictError, match=f"Backfill {batch_id} has ended"):
        cancel(data, batch_id)


def test_backfill_of_another_organisation_is_not_found(data: OrgJobsData) -> None:
    batch_id, (job, *_) = make_backfill(data, OTHER_ORG)
    for missing in (batch_id, batch_id + 99):
        with pytest.raises(NotFoundError, match=f"Backfill {missing} not found"):
            cancel(data, missing, OrgScope(ORG))
        with data.database.reading() as session, pytest.raises(NotFoundError):
            get_backfill(session, missing, OrgScope(ORG))
    assert data.run_row(job).status == "pending"
