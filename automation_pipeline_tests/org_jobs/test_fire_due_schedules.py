"""The dispatcher decides each due time once and plans the next one, despite errors and concurrency."""

import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select, text

from automation_pipeline.org_jobs import fires, runs, schedules
from automation_pipeline.org_jobs.fires import FireReport, backfill_schedule, fire_due_schedules
from automation_pipeline.org_jobs.models.jobs import attempt_succeeded
from automation_pipeline.org_jobs.queries.attempts import end_attempts
from automation_pipeline.org_jobs.tables import FireRow, OrgScheduleRow
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.fiches.queries.mirror import statements
from automation_pipeline_tests.org_jobs.data import ORG, OTHER_ORG, OrgJobsData
from automation_pipeline_tests.org_jobs.scheduling import ORG_SCOPE
from automation_pipeline_tests.org_jobs.worker_processes import dispatch_until_nothing_is_due
from automation_pipeline_tests.processes import PROCESS_COUNT, run_in_processes

EVERY_FIVE = {"cron_expression": "*/5 * * * *"}


def dispatch_due(data: OrgJobsData) -> FireReport:
    return fire_due_schedules(**data.services)


def fire_lines(data: OrgJobsData, schedule_id: str) -> list[str]:
    return [
        f"{row.scheduled_for:%H:%M} {row.skip_reason or row.outcome}"
        for row in data.fires(schedule_id)
    ]


def set_clock(data: OrgJobsData, hour: int, minute: int = 0) -> None:
    data.clock.advance(datetime(2026, 5, 4, hour, minute, 10, tzinfo=UTC) - data.now)


def test_due_schedule_creates_its_job_and_is_planned_again(data: OrgJobsData) -> None:
    host = data.host()
    server = data.server(host_id=host)
    retry = {"maxRetries": 4, "backoffMs": 500, "backoffType": "exponential"}
    id_ = data.schedule(
        server_instance_id=server, payload={"reason": "nightly"}, retry_policy=retry, **EVERY_FIVE
    )
    data.schedule(OTHER_ORG)
    set_clock(data, 10, 5)
    assert dispatch_due(data) == FireReport(dispatched=1)
    [job], [fire], row = data.jobs(), data.fires(id_), data.schedule_row(id_)
    run = data.run_row(job.id)
    due_at = datetime(2026, 5, 4, 10, 5, tzinfo=UTC)
    assert (job.schedule_fire_id, job.scheduled_for, job.type, job.payload) == (
        fire.id, due_at, "SERVER_RESTART", {"reason": "nightly"},
    )  # fmt: skip
    assert (job.retry_policy["maxRetries"], job.retry_policy["backoffType"]) == (4, "exponential")
    assert (run.status, run.max_attempts, run.host_id, run.line, run.org_id) == (
        "pending",
        5,
        host,
        id_,
        ORG,
    )
    assert (fire.trigger, fire.outcome, fire.scheduled_for, fire.effective_for) == (
        "CRON",
        "DISPATCHED",
        due_at,
        due_at,
    )
    assert (row.run_count, row.failure_count, row.last_run_job_id, row.last_run_at) == (
        1,
        0,
        job.id,
        data.now,
    )
    assert (row.last_dispatch_status, row.last_job_status, row.last_scheduled_for) == (
        "dispatched",
        None,
        due_at,
    )
    assert row.next_run_at == due_at + timedelta(minutes=5)
    [fired] = data.events("schedule.fired")
    assert fired.payload["latencyMs"] == 10_000
    assert dispatch_due(data) == FireReport()


def test_clock_set_back_repeats_nothing(data: OrgJobsData) -> None:
    id_ = data.schedule(**EVERY_FIVE)
    set_clock(data, 10, 5)
    dispatch_due(data)
    set_clock(data, 10, 1)
    assert dispatch_due(data) == FireReport()
    set_clock(data, 10, 6)
    assert dispatch_due(data) == FireReport()
    assert fire_lines(data, id_) == ["10:05 DISPATCHED"]


@pytest.mark.parametrize(
    ("policy", "dispatched", "missed"),
    [("SKIP", 0, 36), ("FIRE_ONCE", 1, 35), ("FIRE_ALL", 10, 26)],
)
def test_misfire_policies_after_an_outage(
    data: OrgJobsData, policy: str, dispatched: int, missed: int
) -> None:
    id_ = data.schedule(misfire_policy=policy, overlap_policy="ALLOW_ALL", **EVERY_FIVE)
    set_clock(data, 13)
    for _ in range(12):
        dispatch_due(data)
    outcomes = [row.skip_reason or row.outcome for row in data.fires(id_)]
    assert (outcomes.count("DISPATCHED"), outcomes.count("misfire")) == (dispatched, missed)
    assert {row.note for row in data.fires(id_)} == {None}
    row = data.schedule_row(id_)
    assert (row.run_count, row.failure_count, len(data.jobs())) == (dispatched, 0, dispatched)
    assert row.next_run_at == datetime(2026, 5, 4, 13, 5, tzinfo=UTC)
    skip_events = data.events("schedule.skipped")
    assert sum(int(str(one.payload["missed"])) for one in skip_events) == missed


def test_the_first_fire_after_a_long_outage_says_that_earlier_ones_are_not_listed(
    data: OrgJobsData,
) -> None:
    id_ = data.schedule(cron_expression="* * * * *")
    data.clock.advance(timedelta(days=40))
    dispatch_due(data)
    first, *others = [row.note for row in data.fires(id_)]
    assert first == "Earlier missed due times are not listed."
    assert set(others) == {None}


@pytest.mark.parametrize(
    ("policy", "outcomes", "states"),
    [
        ("SKIP", ["DISPATCHED", "overlap", "overlap"], ["running"]),
        ("BUFFER_ONE", ["DISPATCHED", "DISPATCHED", "overlap"], ["running", "pending"]),
        ("BUFFER_ALL", ["DISPATCHED"] * 3, ["running", "pending", "pending"]),
        ("CANCEL_OTHER", ["DISPATCHED"] * 3, ["running", "cancelled", "pending"]),
        ("TERMINATE_OTHER", ["DISPATCHED"] * 3, ["cancelled", "cancelled", "pending"]),
        ("ALLOW_ALL", ["DISPATCHED"] * 3, ["running", "pending", "pending"]),
    ],
)
def test_a_long_job_under_each_overlap_policy(
    data: OrgJobsData, policy: str, outcomes: list[str], states: list[str]
) -> None:
    id_ = data.schedule(overlap_policy=policy, **EVERY_FIVE)
    set_clock(data, 10, 5)
    dispatch_due(data)
    first = data.run_row(data.jobs()[0].id)
    data.set_run(first.id, status="running", started_at=data.now)
    for minute in (10, 15):
        set_clock(data, 10, minute)
        dispatch_due(data)
    assert [row.skip_reason or row.outcome for row in data.fires(id_)] == outcomes
    assert [job.status for job in data.jobs()] == states
    assert (data.run_by_id(first.id).cancel_requested_at is not None) is (policy == "CANCEL_OTHER")
    lines = {data.run_row(job.id).line for job in data.jobs()}
    assert lines == ({None} if policy == "ALLOW_ALL" else {id_})
    assert data.schedule_row(id_).run_count == outcomes.count("DISPATCHED")


def test_remote_work_gets_a_cancel_request_and_the_new_job_waits(
    data: OrgJobsData,
) -> None:
    data.schedule(
        overlap_policy="TERMINATE_OTHER",
        job_type="AUTOMATION_RUN",
        payload={"scheduleId": "1"},
        **EVERY_FIVE,
    )
    set_clock(data, 10, 5)
    dispatch_due(data)
    first = data.run_row(data.jobs()[0].id)
    data.set_run(first.id, status="running", started_at=data.now, following={"runId": 7})
    set_clock(data, 10, 10)
    dispatch_due(data)
    assert [job.status for job in data.jobs()] == ["running", "pending"]
    assert data.run_by_id(first.id).cancel_requested_at == data.now


def test_failed_dispatch_cancels_no_other_job(data: OrgJobsData) -> None:
    id_ = data.schedule(overlap_policy="TERMINATE_OTHER", **EVERY_FIVE)
    set_clock(data, 10, 5)
    dispatch_due(data)
    data.set_schedule(id_, job_type="GONE")
    set_clock(data, 10, 10)
    assert dispatch_due(data) == FireReport(failed=1)
    assert [job.status for job in data.jobs()] == ["pending"]


@pytest.mark.parametrize("columns", [{"retry_policy": {"maxRetries": 11}}, {"job_type": "GONE"}])
def test_invalid_schedule_does_not_block_others(data: OrgJobsData, columns: dict[str, Any]) -> None:
    broken = data.schedule(ORG, **columns, **EVERY_FIVE)
    data.schedule(OTHER_ORG, **EVERY_FIVE)
    set_clock(data, 10, 5)
    assert dispatch_due(data) == FireReport(dispatched=1, failed=1)
    assert data.schedule_row(broken).next_run_at == datetime(2026, 5, 4, 10, 10, tzinfo=UTC)


@pytest.mark.parametrize("policy", ["SKIP", "BUFFER_ONE", "CANCEL_OTHER", "TERMINATE_OTHER"])
def test_backfill_and_due_jobs_do_not_affect_each_other(data: OrgJobsData, policy: str) -> None:
    id_ = data.schedule(overlap_policy=policy, **EVERY_FIVE)
    given = {"from": "2026-05-04T09:00:00Z", "until": "2026-05-04T09:55:00Z"}
    batch = backfill_schedule(id_, given, **data.context(ORG_SCOPE))
    set_clock(data, 10, 5)
    assert dispatch_due(data) == FireReport(dispatched=1)
    jobs = data.jobs(id_)
    assert {job.status for job in jobs} == {"pending"}
    assert {data.run_row(job.id).line for job in jobs} == {id_, f"backfill-{batch.id}"}
    set_clock(data, 10, 10)
    dispatch_due(data)
    assert {job.status for job in data.jobs(id_) if job.batch_id} == {"pending"}
    is_replaced = policy in {"CANCEL_OTHER", "TERMINATE_OTHER"}
    assert data.job_row(jobs[-1].id).status == ("cancelled" if is_replaced else "pending")


# SQLite locks the whole database, not single rows.
@pytest.mark.parametrize("database_kind", ["postgres"], indirect=True)
def test_locked_schedule_does_not_end_the_tick(
    data: OrgJobsData, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("automation_pipeline.org_jobs.fires.FIRE_BATCH", 2)
    ids = sorted(data.schedule(**EVERY_FIVE) for _ in range(5))
    set_clock(data, 10, 5)
    with database.transaction() as session:
        session.execute(
            select(OrgScheduleRow.id).where(OrgScheduleRow.id == ids[0]).with_for_update()
        )
        assert dispatch_due(data).dispatched == 4
    assert dispatch_due(data).dispatched == 1


def break_jobs_of(data: OrgJobsData, org_id: str) -> None:
    """Make every insert of a job run of this organisation fail."""
    with data.database.transaction() as session:
        if data.database.dialect == "sqlite":
            trigger = f"""CREATE TRIGGER broken BEFORE INSERT ON org_job_runs WHEN NEW.org_id = '{org_id}'
                          BEGIN SELECT RAISE(ABORT, 'the queue is broken'); END"""
            session.execute(text(trigger))
        else:
            session.execute(
                text(
                    f"ALTER TABLE org_job_runs ADD CONSTRAINT broken CHECK (org_id <> '{org_id}') NOT VALID"
                )
            )


def repair_jobs(data: OrgJobsData) -> None:
    with data.database.transaction() as session:
        drop = "DROP TRIGGER broken" if data.database.dialect == "sqlite" else (
            "ALTER TABLE org_job_runs DROP CONSTRAINT broken"
        )  # fmt: skip
        session.execute(text(drop))


def test_job_that_cannot_be_created_fails_alone(data: OrgJobsData) -> None:
    broken, whole = data.schedule(ORG, **EVERY_FIVE), data.schedule(OTHER_ORG, **EVERY_FIVE)
    break_jobs_of(data, ORG)
    try:
        set_clock(data, 10, 5)
        assert dispatch_due(data) == FireReport(dispatched=1, failed=1)
    finally:
        repair_jobs(data)
    row, [fire] = data.schedule_row(broken), data.fires(broken)
    assert (row.failure_count, row.consecutive_failures, row.run_count, row.last_run_at) == (
        1,
        1,
        0,
        None,
    )
    assert row.last_dispatch_status == "scheduler_failed"
    assert row.next_run_at == datetime(2026, 5, 4, 10, 10, tzinfo=UTC)
    assert (fire.outcome, fire.error.startswith("Its job could not be created: ")) == (
        "FAILED",
        True,
    )
    assert [job.schedule_id for job in data.jobs()] == [whole]
    [failed] = data.events("schedule.failed")
    assert failed.payload["consecutiveFailures"] == 1
    set_clock(data, 10, 10)
    dispatch_due(data)
    assert fire_lines(data, broken) == ["10:05 FAILED", "10:10 DISPATCHED"]
    assert data.schedule_row(broken).failure_count == 1


def test_consecutive_failures_pause_the_schedule(data: OrgJobsData) -> None:
    id_ = data.schedule(auto_pause_after=2, job_type="NO_SUCH_TYPE", **EVERY_FIVE)
    for minute in (5, 10, 15):
        set_clock(data, 10, minute)
        dispatch_due(data)
    row = data.schedule_row(id_)
    assert (row.state, row.enabled, row.next_run_at, row.failure_count) == (
        "PAUSED",
        False,
        None,
        2,
    )
    assert row.pause_reason == "2 failures in a row"
    assert fire_lines(data, id_) == ["10:05 FAILED", "10:10 FAILED"]
    assert data.transitions("schedule", id_) == [("ACTIVE", "PAUSED")]
    [paused] = data.events("schedule.auto_paused")
    assert paused.payload["consecutiveFailures"] == 2


def test_success_resets_consecutive_failures(data: OrgJobsData) -> None:
    id_ = data.schedule(consecutive_failures=9, failure_count=20, **EVERY_FIVE)
    set_clock(data, 10, 5)
    dispatch_due(data)
    run_id = data.run_row(data.jobs()[0].id).id
    data.set_run(run_id, status="running", started_at=data.now)
    with data.database.transaction() as session:
        end_attempts(session, {run_id: attempt_succeeded()}, "worker", data.now)
    row = data.schedule_row(id_)
    assert (row.consecutive_failures, row.failure_count, row.last_job_status) == (0, 20, "success")


def test_invalid_schedule_is_no_longer_due(data: OrgJobsData) -> None:
    id_, other = data.schedule(**EVERY_FIVE), data.schedule(**EVERY_FIVE)
    data.set_schedule(id_, timezone="Europe/Gone")
    set_clock(data, 10, 5)
    assert dispatch_due(data) == FireReport(dispatched=1, unreadable=1)
    row = data.schedule_row(id_)
    assert (row.state, row.enabled, row.next_run_at) == ("INVALID_CRON", True, None)
    assert data.transitions("schedule", id_) == [("ACTIVE", "INVALID_CRON")]
    assert fire_lines(data, other) == ["10:05 DISPATCHED"]


def test_schedule_completes_after_its_last_due_time(data: OrgJobsData) -> None:
    end = datetime(2026, 5, 4, 10, 5, tzinfo=UTC)
    id_ = data.schedule(end_at=end, **EVERY_FIVE)
    set_clock(data, 10, 5)
    assert dispatch_due(data) == FireReport(dispatched=1)
    row = data.schedule_row(id_)
    assert (row.state, row.next_run_at, row.run_count) == ("COMPLETED", None, 1)


@pytest.mark.parametrize(
    ("reason", "schedule", "host", "organisation"),
    [
        ("operator", {"skip_next_run": True, "skip_next_run_reason": "Release day"}, {}, {}),
        ("maintenance", {}, {"maintenance_until": datetime(2026, 5, 5, tzinfo=UTC)}, {}),
        ("maintenance", {}, {}, {"maintenance_until": datetime(2026, 5, 5, tzinfo=UTC)}),
        ("disabled", {}, {}, {"suspended_at": datetime(2026, 5, 1, tzinfo=UTC)}),
        ("host_offline", {"skip_if_offline": True}, {"last_seen_at": None}, {}),
    ],
)
def test_skip_has_an_event_with_its_reason(
    data: OrgJobsData,
    reason: str,
    schedule: dict[str, Any],
    host: dict[str, Any],
    organisation: dict[str, Any],
) -> None:
    server = data.server(host_id=data.host(**host))
    data.organisation(ORG, **organisation)
    id_ = data.schedule(server_instance_id=server, **schedule, **EVERY_FIVE)
    set_clock(data, 10, 5)
    assert dispatch_due(data) == FireReport(skipped={reason: 1})
    row = data.schedule_row(id_)
    assert (fire_lines(data, id_), data.jobs()) == ([f"10:05 {reason}"], [])
    assert (row.last_dispatch_status, row.skip_next_run, row.run_count) == (
        f"skipped_{reason}",
        False,
        0,
    )
    assert (row.last_run_at, row.next_run_at) == (None, datetime(2026, 5, 4, 10, 10, tzinfo=UTC))


def test_an_agent_is_offline_after_three_minutes(data: OrgJobsData) -> None:
    host = data.host()
    server = data.server(host_id=host)
    id_ = data.schedule(
        server_instance_id=server, skip_if_offline=True, overlap_policy="ALLOW_ALL", **EVERY_FIVE
    )
    for minute, seconds in ((5, 180), (10, 181)):
        set_clock(data, 10, minute)
        data.set_host(host, last_seen_at=data.now - timedelta(seconds=seconds))
        dispatch_due(data)
    assert fire_lines(data, id_) == ["10:05 DISPATCHED", "10:10 host_offline"]


@pytest.mark.parametrize(
    "columns",
    [{"state": "PAUSED", "enabled": False}, {"state": "INVALID_CRON"}, {"state": "COMPLETED"}],
)
def test_inactive_schedule_is_not_dispatched(data: OrgJobsData, columns: dict[str, Any]) -> None:
    data.schedule(**columns, **EVERY_FIVE)
    set_clock(data, 10, 5)
    assert dispatch_due(data) == FireReport()


def test_each_organisation_has_its_share_of_a_tick(
    data: OrgJobsData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("automation_pipeline.org_jobs.fires.FIRE_BATCH", 4)
    monkeypatch.setattr("automation_pipeline.org_jobs.fires.MOST_ROUNDS", 1)
    many = [data.schedule(ORG, **EVERY_FIVE) for _ in range(9)]
    few = [data.schedule(OTHER_ORG, **EVERY_FIVE) for _ in range(2)]
    set_clock(data, 10, 5)
    dispatch_due(data)
    fired = {job.schedule_id for job in data.jobs()}
    assert set(few) <= fired
    assert len(fired & set(many)) == 2


def test_each_tick_handles_a_limited_number_of_rows() -> None:
    assert (fires.FIRE_BATCH, fires.MOST_ROUNDS, schedules.RESUME_BATCH) == (250, 8, 250)
    assert (runs.FOLLOW_BATCH, runs.REAP_BATCH, runs.STOPS_WITHIN_SECONDS) == (500, 200, 10)


def test_concurrent_dispatchers_decide_each_due_time_once(
    data: OrgJobsData, database_url: str
) -> None:
    server = data.server()
    ids = [data.schedule(server_instance_id=server, **EVERY_FIVE) for _ in range(60)]
    set_clock(data, 10, 5)
    counts = run_in_processes(
        dispatch_until_nothing_is_due, *((database_url, data.now) for _ in range(PROCESS_COUNT))
    )
    assert sum(counts) == len(ids)
    assert sorted(str(job.schedule_id) for job in data.jobs()) == sorted(ids)
    assert {row.outcome for row in data.rows(select(FireRow))} == {"DISPATCHED"}
    assert {data.schedule_row(id_).run_count for id_ in ids} == {1}


SCRIPT_THAT_DIES = """
import sys
from automation_pipeline_tests.org_jobs.worker_processes import dispatch_and_be_killed
dispatch_and_be_killed(sys.argv[1], sys.argv[2], int(sys.argv[3]))
"""


@pytest.mark.parametrize("nth", [1, 2])
def test_killed_dispatcher_leaves_no_partial_work(
    data: OrgJobsData, database_url: str, nth: int
) -> None:
    server = data.server()
    ids = [data.schedule(server_instance_id=server, **EVERY_FIVE) for _ in range(8)]
    set_clock(data, 10, 5)
    killed = subprocess.run(
        [sys.executable, "-c", SCRIPT_THAT_DIES, database_url, data.now.isoformat(), str(nth)],
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    done = 3 * (nth - 1)
    assert (len(data.jobs()), len(data.rows(select(FireRow)))) == (done, done)
    assert dispatch_due(data).dispatched == len(ids) - done
    assert sorted(str(job.schedule_id) for job in data.jobs()) == sorted(ids)
    assert {data.run_row(job.id).status for job in data.jobs()} == {"pending"}


def test_number_of_queries_per_tick_is_constant(data: OrgJobsData) -> None:
    server = data.server()
    data.schedule(server_instance_id=server, **EVERY_FIVE)
    set_clock(data, 10, 10)
    with statements(data.database) as of_one:
        dispatch_due(data)
    for _ in range(40):
        data.schedule(server_instance_id=server, **EVERY_FIVE)
    set_clock(data, 10, 20)
    with statements(data.database) as of_many:
        dispatch_due(data)
    assert len(of_many) <= len(of_one)
    assert [sql.split()[1] for sql in of_many if sql.startswith("UPDATE")] == ["org_schedules"]


def test_the_report_names_what_happened() -> None:
    assert str(FireReport()) == "Dispatched 0."
    report = FireReport(dispatched=2, failed=1, skipped={"OVERLAP": 3, "MISFIRE": 4}, unreadable=5)
    assert str(report) == (
        "Dispatched 2; skipped 4 (MISFIRE); skipped 3 (OVERLAP); failed 1; 5 no longer valid."
    )
