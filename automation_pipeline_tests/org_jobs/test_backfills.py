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
from automation_pipeline_tests.org_jobs.bench import ACTOR, ORG, OTHER_ORG, Bench

PERIOD = {"from": "2026-05-01T00:00:00Z", "until": "2026-05-03T12:00:00Z"}


def at(day: int, hour: int = 2) -> datetime:
    return datetime(2026, 5, day, hour, tzinfo=UTC)


def backfilled(
    bench: Bench, schedule_id: str, within: OrgScope = ALL_ORGANISATIONS, **given: object
) -> Backfill:
    return backfill_schedule(
        schedule_id,
        PERIOD | given,
        within=within,
        database=bench.database,
        clock=bench.clock,
        actor=ACTOR,
    )


def stored(bench: Bench, made: Backfill) -> Backfill:
    with bench.database.reading() as session:
        return get_backfill(session, made.id or 0, OrgScope(ORG))


def ended(bench: Bench, job_id: int, *, well: bool) -> None:
    """End the last attempt of the job."""
    run = bench.run_row(job_id)
    bench.set_run(run.id, status="running", started_at=bench.now, attempt_no=run.max_attempts)
    with bench.database.transaction() as session:
        end_attempts(
            session,
            {run.id: attempt_succeeded() if well else attempt_failed("It broke.")},
            "test",
            bench.now,
        )


def test_each_due_time_gets_its_job(org_bench: Bench) -> None:
    host = org_bench.host()
    server = org_bench.server(host_id=host)
    schedule = org_bench.schedule(server_instance_id=server, payload={"message": "x"}, priority=4)
    made = backfilled(org_bench, schedule, OrgScope(ORG))
    assert made == stored(org_bench, made)
    assert (made.status, made.total, made.pending, made.behaviour, made.times) == (
        "running",
        3,
        3,
        "none",
        (),
    )
    fires, jobs = org_bench.fires(schedule), org_bench.jobs(schedule)
    assert [(one.trigger, one.outcome, one.batch_id, one.actor) for one in fires] == [
        ("BACKFILL", "DISPATCHED", made.id, ACTOR)
    ] * 3
    assert (
        [one.scheduled_for for one in jobs]
        == [one.scheduled_for for one in fires]
        == [at(1), at(2), at(3)]
    )
    assert {
        (one.batch_id, one.priority, one.server_instance_id, one.created_by) for one in jobs
    } == {(made.id, 5, server, ACTOR)}
    runs = [org_bench.run_row(one.id) for one in jobs]
    assert {(one.line, one.host_id, one.next_attempt_at) for one in runs} == {
        (f"backfill-{made.id}", host, None)
    }
    row = org_bench.schedule_row(schedule)
    assert (row.run_count, row.last_run_job_id, row.next_scheduled_for) == (3, None, at(5))
    assert len(org_bench.events("schedule.fired")) == 3
    assert org_bench.audit(schedule)[-1].after["batchId"] == str(made.id)


def test_serial_jobs_expire_later(org_bench: Bench) -> None:
    serial = org_bench.schedule(job_type="HTTPS_CALL", payload={"url": "https://example.com/"})
    parallel = org_bench.schedule(
        job_type="HTTPS_CALL", payload={"url": "https://example.com/"}, overlap_policy="ALLOW_ALL"
    )
    for schedule in (serial, parallel):
        backfilled(org_bench, schedule)
    first, second, _ = (one.expires_at - org_bench.now for one in org_bench.jobs(serial))
    assert first == timedelta(hours=24) < second
    assert {one.expires_at - org_bench.now for one in org_bench.jobs(parallel)} == {first}
    assert {org_bench.run_row(one.id).line for one in org_bench.jobs(parallel)} == {None}


def test_dry_run_writes_nothing_and_gives_reasons(org_bench: Bench) -> None:
    schedule = org_bench.schedule()
    org_bench.fire(schedule, at(2))
    org_bench.job(
        schedule_id=schedule, fire_id=org_bench.fires(schedule)[0].id, scheduled_for=at(2)
    )
    result = backfilled(org_bench, schedule, dryRun=True)
    assert (result.id, result.status, result.total, result.dry_run) == (None, None, 2, True)
    assert [(one.scheduled_for, one.left_out) for one in result.times] == [
        (at(1), None), (at(2), "at_work"), (at(3), None),
    ]  # fmt: skip
    assert len(org_bench.jobs(schedule)) == len(org_bench.fires(schedule)) == 1
    assert org_bench.audit(schedule) == org_bench.events() == []
    with org_bench.database.reading() as session:
        assert list_backfills(session, ALL_ORGANISATIONS, limit=10, offset=0) == []


def test_second_backfill_of_a_period_repeats_nothing(org_bench: Bench) -> None:
    schedule = org_bench.schedule()
    backfilled(org_bench, schedule)
    again = backfilled(org_bench, schedule)
    assert (again.total, again.status, again.finished_at) == (0, "completed", org_bench.now)
    assert len(org_bench.jobs(schedule)) == 3


def test_the_reprocess_behaviour_decides_which_due_times_are_repeated(org_bench: Bench) -> None:
    schedule = org_bench.schedule(auto_pause_after=0)
    backfilled(org_bench, schedule)
    one, two, three = (job.id for job in org_bench.jobs(schedule))
    ended(org_bench, one, well=True)
    ended(org_bench, two, well=False)
    assert backfilled(org_bench, schedule).total == 0
    failed_ones = backfilled(org_bench, schedule, behaviour="failed")
    assert [job.scheduled_for for job in org_bench.jobs(schedule)[3:]] == [at(2)]
    ended(org_bench, org_bench.jobs(schedule)[3].id, well=True)
    assert backfilled(org_bench, schedule, behaviour="failed").total == 0
    ended(org_bench, three, well=True)
    everything = backfilled(org_bench, schedule, behaviour="completed")
    assert (failed_ones.total, everything.total) == (1, 3)


def test_backfill_ends_with_its_last_job(org_bench: Bench) -> None:
    schedule = org_bench.schedule(auto_pause_after=0)
    made = backfilled(org_bench, schedule)
    one, two, three = (job.id for job in org_bench.jobs(schedule))
    ended(org_bench, one, well=True)
    ended(org_bench, two, well=False)
    assert (stored(org_bench, made).status, stored(org_bench, made).pending) == ("running", 1)
    ended(org_bench, three, well=True)
    over = stored(org_bench, made)
    assert (over.status, over.success, over.failed, over.pending) == (
        "completed_with_failures",
        2,
        1,
        0,
    )
    assert over.finished_at == org_bench.now


def test_more_than_the_limit_is_refused_whole(org_bench: Bench) -> None:
    schedule = org_bench.schedule()
    for dry in (True, False):
        with pytest.raises(InvalidInputError) as refused:
            backfilled(org_bench, schedule, limit=2, dryRun=dry)
        [(field, why)] = refused.value.fields
        assert (field, "there are 3 due times" in why) == ("limit", True)
    assert org_bench.jobs(schedule) == []


def test_due_times_of_the_dispatcher_are_left_out(org_bench: Bench) -> None:
    schedule = org_bench.schedule(next_run_at=at(3), next_scheduled_for=at(3))
    assert backfilled(org_bench, schedule).total == 2
    org_bench.set_schedule(schedule, state="PAUSED", next_run_at=None, next_scheduled_for=None)
    assert backfilled(org_bench, schedule).total == 1


def test_backfill_jobs_wait_for_the_window(org_bench: Bench) -> None:
    schedule = org_bench.schedule(execution_window_start="02:00", execution_window_end="04:00")
    backfilled(org_bench, schedule)
    [first, *_] = org_bench.jobs(schedule)
    assert org_bench.run_row(first.id).next_attempt_at == at(5)
    assert first.start_window == {"start": "02:00", "end": "04:00", "timezone": "UTC"}


@pytest.mark.parametrize("columns", [{"timezone": "Europe/Atlantis"}, {"job_type": "GONE"}])
def test_backfill_of_an_invalid_schedule_is_refused(
    columns: dict[str, object], org_bench: Bench
) -> None:
    schedule = org_bench.schedule()
    org_bench.set_schedule(schedule, **columns)
    with pytest.raises(ConflictError, match="correct it first"):
        backfilled(org_bench, schedule)


def test_backfill_of_a_suspended_organisation_is_refused(org_bench: Bench) -> None:
    schedule = org_bench.schedule()
    org_bench.organisation(suspended_at=org_bench.now)
    with pytest.raises(ConflictError, match="Organisation 'acme' is suspended: resume it first"):
        backfilled(org_bench, schedule)
    assert org_bench.jobs() == []


def test_schedule_of_another_organisation_is_not_found(org_bench: Bench) -> None:
    theirs = org_bench.schedule(OTHER_ORG)
    deleted = org_bench.schedule(deleted_at=org_bench.now)
    for schedule in (theirs, deleted, "nothing"):
        with pytest.raises(NotFoundError, match=f"Schedule {schedule} not found"):
            backfilled(org_bench, schedule, OrgScope(ORG))
    assert org_bench.jobs() == []


def test_number_of_queries_is_constant(org_bench: Bench) -> None:
    counts: list[int] = []
    for until in ("2026-05-01T06:00:00Z", "2026-05-02T06:00:00Z"):
        schedule = org_bench.schedule(cron_expression="*/10 * * * *")
        statements: list[str] = []

        def note(*given: object, statements: list[str] = statements) -> None:
            statements.append(str(given[2]))

        event.listen(org_bench.database.engine, "before_cursor_execute", note)
        backfilled(org_bench, schedule, until=until)
        event.remove(org_bench.database.engine, "before_cursor_execute", note)
        counts.append(len(statements))
    assert counts[0] == counts[1]


def made(bench: Bench, org_id: str = ORG, **given: object) -> tuple[int, list[int]]:
    """Create a backfill; return its id and those of its jobs."""
    schedule = bench.schedule(org_id)
    world = {
        "within": ALL_ORGANISATIONS,
        "database": bench.database,
        "clock": bench.clock,
        "actor": ACTOR,
    }
    backfill = backfill_schedule(schedule, PERIOD | given, **world)
    return backfill.id or 0, [job.id for job in bench.jobs(schedule)]


def cancel(
    bench: Bench, batch_id: int, within: OrgScope = ALL_ORGANISATIONS, reason: str | None = None
) -> Backfill:
    world = {"within": within, "database": bench.database, "clock": bench.clock}
    return cancel_backfill(batch_id, **world, actor="user:2", reason=reason)


def test_waiting_jobs_are_cancelled_and_running_jobs_are_asked_to_stop(org_bench: Bench) -> None:
    batch_id, (one, two, three) = made(org_bench)
    running = org_bench.run_row(one).id
    org_bench.set_run(running, status="running", started_at=org_bench.now)
    other = org_bench.job()
    over = cancel(org_bench, batch_id, OrgScope(ORG), "Wrong period.")
    assert (over.status, over.running, over.cancelled, over.finished_at) == (
        "cancelled",
        1,
        2,
        org_bench.now,
    )
    asked = org_bench.run_by_id(running)
    assert (asked.status, asked.cancel_requested_at, asked.cancelled_by) == (
        "running",
        org_bench.now,
        "user:2",
    )
    assert asked.cancel_reason == "Its backfill was cancelled. Wrong period."
    assert {org_bench.run_row(job).status for job in (two, three)} == {"cancelled"}
    assert org_bench.run_row(other).status == "pending"
    [entry] = org_bench.audit(str(batch_id))
    assert (entry.action, entry.entity, entry.reason) == ("cancel", "backfill", "Wrong period.")


def test_a_cancelled_backfill_stays_cancelled_when_its_last_job_ends(org_bench: Bench) -> None:
    batch_id, (one, *_) = made(org_bench)
    running = org_bench.run_row(one).id
    org_bench.set_run(running, status="running", started_at=org_bench.now)
    first = cancel(org_bench, batch_id)
    with org_bench.database.transaction() as session:
        end_attempts(session, {running: attempt_cancelled("Stopped.")}, "test", org_bench.now)
    assert cancel(org_bench, batch_id) == first.model_copy(update={"running": 0, "cancelled": 3})
    assert len(org_bench.audit(str(batch_id))) == 1


def test_an_ended_backfill_is_not_cancelled(org_bench: Bench) -> None:
    batch_id, jobs = made(org_bench, until="2026-05-01T00:00:00Z")
    assert jobs == []
    with pytest.raises(ConflictError, match=f"Backfill {batch_id} has ended"):
        cancel(org_bench, batch_id)


def test_backfill_of_another_organisation_is_not_found(org_bench: Bench) -> None:
    batch_id, (job, *_) = made(org_bench, OTHER_ORG)
    for missing in (batch_id, batch_id + 99):
        with pytest.raises(NotFoundError, match=f"Backfill {missing} not found"):
            cancel(org_bench, missing, OrgScope(ORG))
        with org_bench.database.reading() as session, pytest.raises(NotFoundError):
            get_backfill(session, missing, OrgScope(ORG))
    assert org_bench.run_row(job).status == "pending"
