"""Schedules of organisations: create, change, pause, resume, skip, run, delete."""

from datetime import timedelta
from typing import Any

import pytest

from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import ConflictError, InvalidInputError, NotFoundError
from automation_pipeline.org_jobs.models.organisations import ALL_ORGANISATIONS, OrgScope
from automation_pipeline.org_jobs.queries.schedules import fires_of, get_schedule, list_schedules
from automation_pipeline.org_jobs.rules.schedules import SchedulePreview
from automation_pipeline.org_jobs.schedules import (
    coming_runs,
    delete_schedule,
    keep_next_run,
    preview_schedule,
    resume_paused_schedules,
    skip_next_run,
)
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.org_jobs.data import ACTOR, ORG, OTHER_ORG, OrgJobsData
from automation_pipeline_tests.org_jobs.rules.schedules import NOW, schedule_input
from automation_pipeline_tests.org_jobs.scheduling import (
    ORG_SCOPE,
    create,
    log_of,
    pause,
    resume,
    run_now,
    update,
)


def test_enabled_schedule_is_active_and_due(data: OrgJobsData) -> None:
    schedule = create(data, retryPolicy={"maxRetries": 1}, excludedOn=["2026-05-05"])
    row = data.schedule_row(schedule.id)
    assert (row.state, row.version, row.created_by, row.org_id) == ("ACTIVE", 1, ACTOR, ORG)
    assert (iso(row.next_run_at), row.next_scheduled_for) == (
        "2026-05-06T02:00:00.000Z",
        row.next_run_at,
    )
    assert row.retry_policy == {
        "maxRetries": 1,
        "backoffMs": 2000,
        "backoffType": "fixed",
        "jitter": False,
    }
    assert (schedule.next_run_at, schedule.last_run_status, schedule.run_count) == (
        row.next_run_at,
        None,
        0,
    )


def test_disabled_schedule_is_paused_without_a_due_time(data: OrgJobsData) -> None:
    schedule = create(data, enabled=False)
    assert (schedule.state, schedule.next_run_at, schedule.next_scheduled_for) == (
        "PAUSED",
        None,
        None,
    )


def test_creation_has_an_event_and_an_audit_entry(data: OrgJobsData) -> None:
    schedule = create(data)
    (entry,) = data.audit(schedule.id)
    assert (entry.action, entry.entity, entry.actor, entry.before) == (
        "create",
        "schedule",
        ACTOR,
        None,
    )
    assert entry.after["cronExpression"] == "0 2 * * *"
    (event,) = data.events()
    assert (event.name, event.tenant_id, event.payload["scheduleId"]) == (
        "schedule.created",
        ORG,
        schedule.id,
    )


def test_new_schedule_of_a_suspended_organisation_is_paused(data: OrgJobsData) -> None:
    data.organisation(suspended_at=data.now)
    row = data.schedule_row(create(data).id)
    assert (row.state, row.enabled, row.is_suspended, row.next_run_at) == (
        "PAUSED",
        True,
        True,
        None,
    )
    assert not data.schedule_row(create(data, enabled=False).id).is_suspended


def test_server_must_belong_to_the_organisation(data: OrgJobsData) -> None:
    agents = {"jobType": "SERVER_RESTART", "payload": {}}
    server, theirs = data.server(), data.server(OTHER_ORG)
    assert create(data, **agents, serverInstanceId=str(server)).server_instance_id == server
    for wrong in (theirs, theirs + 1000):
        with pytest.raises(InvalidInputError) as refused:
            create(data, **agents, serverInstanceId=wrong)
        assert refused.value.fields == (
            ("serverInstanceId", "is not a server of organisation 'acme'"),
        )
    assert len(data.audit()) == 1


@pytest.mark.parametrize("days", [-1, 0.1])
def test_schedule_without_due_times_is_refused(data: OrgJobsData, days: float) -> None:
    with pytest.raises(InvalidInputError) as refused:
        create(data, endAt=iso(data.now + timedelta(days=days)))
    assert [field for field, _ in refused.value.fields] == ["endAt"]


def test_other_organisation_is_not_found(data: OrgJobsData) -> None:
    with pytest.raises(NotFoundError) as theirs:
        create(data, OTHER_ORG)
    assert str(theirs.value) == "Organisation globex not found"
    assert create(data, OTHER_ORG, ALL_ORGANISATIONS).org_id == OTHER_ORG
    assert ORG_SCOPE.org_id == ORG


def test_change_of_the_name_keeps_the_due_time(data: OrgJobsData) -> None:
    before = create(data)
    data.advance_minutes(1)
    after = update(data, before.id, name="Other", description=None)
    assert (after.name, after.version, after.updated_at) == ("Other", 2, data.now)
    assert (after.state, after.next_run_at) == (before.state, before.next_run_at)
    entry = data.audit(before.id)[-1]
    assert (entry.action, entry.before, entry.after) == (
        "update",
        {"name": "Nightly"},
        {"name": "Other"},
    )
    assert data.events("schedule.updated")[0].payload["changed"] == ["name"]


def test_empty_change_writes_nothing(data: OrgJobsData) -> None:
    before = create(data)
    data.advance_minutes(1)
    assert update(data, before.id, name="Nightly", priority=5) == before
    assert log_of(data, before.id) == ["create"]


def test_new_cron_counts_from_now_and_logs_the_dropped_due_time(
    data: OrgJobsData,
) -> None:
    before = create(data, cronExpression="0 11 * * *")
    data.advance_minutes(90)
    after = update(data, before.id, cronExpression="0 12 * * *")
    assert iso(after.next_run_at) == "2026-05-04T12:00:00.000Z"
    assert log_of(data, before.id) == ["create", "drop_due", "update"]
    dropped = data.audit(before.id)[1]
    assert dropped.before == {
        "nextRunAt": "2026-05-04T11:00:00.000Z",
        "nextScheduledFor": "2026-05-04T11:00:00.000Z",
    }


def test_due_time_that_waits_for_its_window_is_logged_when_dropped(data: OrgJobsData) -> None:
    window = {"executionWindowStart": "22:00", "executionWindowEnd": "23:00"}
    before = create(data, cronExpression="0 11 * * *", **window)
    data.advance_minutes(90)
    update(data, before.id, jitterS=60)
    assert "drop_due" in log_of(data, before.id)


def test_enabled_field_pauses_and_resumes(data: OrgJobsData) -> None:
    schedule = create(data)
    off = update(data, schedule.id, enabled=False)
    assert (off.state, off.next_run_at) == ("PAUSED", None)
    data.set_schedule(schedule.id, pause_reason="10 failures in a row", consecutive_failures=10)
    on = update(data, schedule.id, enabled=True)
    assert (on.state, on.pause_reason, on.consecutive_failures) == ("ACTIVE", None, 0)
    assert data.transitions("schedule", schedule.id) == [("ACTIVE", "PAUSED"), ("PAUSED", "ACTIVE")]


def test_schedule_toggled_twice_within_a_second_is_due_once(data: OrgJobsData) -> None:
    schedule = create(data)
    for enabled in (False, True, False, True):
        last = update(data, schedule.id, enabled=enabled)
    assert (last.next_run_at, last.version) == (schedule.next_run_at, 5)


def test_new_cron_of_a_paused_schedule_keeps_the_pause(data: OrgJobsData) -> None:
    schedule = create(data)
    pause(data, schedule.id, reason="Holidays")
    after = update(data, schedule.id, cronExpression="0 3 * * *")
    assert (after.state, after.pause_reason, after.next_run_at) == ("PAUSED", "Holidays", None)


@pytest.mark.parametrize("is_enabled", [True, False])
def test_invalid_schedule_is_corrected(data: OrgJobsData, is_enabled: bool) -> None:
    broken = {
        "state": "INVALID_CRON",
        "timezone": "Gone/City",
        "next_run_at": None,
        "enabled": is_enabled,
    }
    schedule_id = data.schedule(**broken)
    with pytest.raises(InvalidInputError) as refused:
        update(data, schedule_id, name="Other")
    assert [field for field, _ in refused.value.fields] == ["timezone"]
    after = update(data, schedule_id, timezone="Europe/Paris")
    assert after.state == ("ACTIVE" if is_enabled else "PAUSED")
    assert (after.next_run_at is not None) == is_enabled


def test_completed_schedule_continues_with_a_later_end(data: OrgJobsData) -> None:
    schedule_id = data.schedule(state="COMPLETED", end_at=data.now - timedelta(days=1))
    assert update(data, schedule_id, name="Other").state == "COMPLETED"
    assert update(data, schedule_id, endAt=iso(data.now + timedelta(days=9))).state == "ACTIVE"
    assert update(data, schedule_id, endAt=iso(data.now)).state == "COMPLETED"
    assert update(data, schedule_id, endAt=None).state == "ACTIVE"


def test_schedule_of_a_suspended_organisation_stays_paused_after_a_change(
    data: OrgJobsData,
) -> None:
    schedule = create(data, enabled=False)
    data.organisation(suspended_at=data.now)
    waits = update(data, schedule.id, enabled=True)
    assert (waits.state, waits.enabled, waits.is_suspended) == ("PAUSED", True, True)
    retimed = update(data, schedule.id, cronExpression="0 3 * * *")
    assert (retimed.state, retimed.is_suspended) == ("PAUSED", True)
    off = update(data, schedule.id, enabled=False)
    assert (off.state, off.is_suspended, off.pause_reason) == ("PAUSED", False, None)


def test_new_server_must_belong_to_the_organisation(data: OrgJobsData) -> None:
    schedule_id, theirs = data.schedule(), data.server(OTHER_ORG)
    with pytest.raises(InvalidInputError) as refused:
        update(data, schedule_id, serverInstanceId=theirs)
    assert [field for field, _ in refused.value.fields] == ["serverInstanceId"]


def test_a_schedule_of_another_organisation_to_update_is_not_found(data: OrgJobsData) -> None:
    theirs = data.schedule(OTHER_ORG)
    with pytest.raises(NotFoundError, match="not found"):
        update(data, theirs, name="Mine")
    with pytest.raises(NotFoundError):
        update(data, "no\0such", name="Mine")
    assert update(data, theirs, within=OrgScope(OTHER_ORG), name="Theirs").name == "Theirs"


def test_paused_schedule_is_not_due_until_it_is_resumed(data: OrgJobsData) -> None:
    schedule = create(data)
    until = data.now + timedelta(days=1)
    shown = pause(data, schedule.id, reason="Holidays", until=until)
    assert (shown.state, shown.enabled, shown.next_run_at, shown.next_scheduled_for) == (
        "PAUSED",
        False,
        None,
        None,
    )
    assert (shown.pause_reason, shown.paused_until) == ("Holidays", until)
    assert data.transitions("schedule", schedule.id) == [("ACTIVE", "PAUSED")]
    assert data.audit(schedule.id)[-1].reason == "Holidays"
    assert data.events("schedule.paused")[0].payload["reason"] == "Holidays"


def test_second_pause_without_a_reason_changes_nothing(data: OrgJobsData) -> None:
    schedule = create(data)
    first = pause(data, schedule.id, reason="Holidays")
    assert pause(data, schedule.id) == first
    again = pause(data, schedule.id, reason="Repairs")
    assert (again.pause_reason, again.state) == ("Repairs", "PAUSED")
    assert log_of(data, schedule.id) == ["create", "pause", "pause"]


def test_pause_logs_the_dropped_due_time(data: OrgJobsData) -> None:
    schedule = create(data, cronExpression="0 11 * * *")
    data.advance_minutes(61)
    pause(data, schedule.id)
    assert log_of(data, schedule.id) == ["create", "drop_due", "pause"]


def test_schedule_paused_by_an_operator_is_not_resumed_with_its_organisation(
    data: OrgJobsData,
) -> None:
    schedule_id = data.schedule(
        state="PAUSED", is_suspended=True, pause_reason="Its organisation is suspended."
    )
    shown = pause(data, schedule_id)
    assert (shown.enabled, shown.is_suspended, shown.pause_reason) == (False, False, None)


@pytest.mark.parametrize("state", ["COMPLETED", "INVALID_CRON"])
def test_schedule_without_due_times_cannot_be_paused(data: OrgJobsData, state: str) -> None:
    with pytest.raises(ConflictError):
        pause(data, data.schedule(state=state))


def test_end_of_a_pause_must_be_in_the_future(data: OrgJobsData) -> None:
    with pytest.raises(InvalidInputError) as refused:
        pause(data, data.schedule(), until=data.now)
    assert refused.value.fields == (("until", "must be in the future"),)


def test_a_schedule_of_another_organisation_to_pause_is_not_found(data: OrgJobsData) -> None:
    theirs = data.schedule(OTHER_ORG)
    with pytest.raises(NotFoundError):
        pause(data, theirs)
    assert data.schedule_row(theirs).state == "ACTIVE"


def test_resumed_schedule_is_due_from_now_on(data: OrgJobsData) -> None:
    schedule = create(data)
    pause(data, schedule.id, reason="Holidays", until=data.now + timedelta(days=9))
    data.set_schedule(schedule.id, consecutive_failures=10)
    data.advance_minutes(3 * 24 * 60)
    shown = resume(data, schedule.id)
    assert (shown.state, shown.enabled, iso(shown.next_run_at)) == (
        "ACTIVE",
        True,
        "2026-05-08T02:00:00.000Z",
    )
    assert (shown.pause_reason, shown.paused_until, shown.consecutive_failures) == (None, None, 0)
    assert log_of(data, schedule.id) == ["create", "pause", "resume"]
    assert len(data.events("schedule.resumed")) == 1


def test_active_schedule_stays_unchanged(data: OrgJobsData) -> None:
    schedule = create(data)
    data.advance_minutes(3 * 24 * 60)
    assert resume(data, schedule.id) == schedule
    assert log_of(data, schedule.id) == ["create"]


def test_decided_due_time_is_not_repeated_when_the_clock_is_set_back(
    data: OrgJobsData,
) -> None:
    decided = data.now.replace(day=6, hour=2)
    schedule_id = data.schedule(state="PAUSED", enabled=False, last_scheduled_for=decided)
    assert resume(data, schedule_id).next_scheduled_for == decided + timedelta(days=1)


def test_schedule_of_a_suspended_organisation_cannot_be_resumed(data: OrgJobsData) -> None:
    schedule_id = data.schedule(state="PAUSED", is_suspended=True)
    data.organisation(suspended_at=data.now)
    with pytest.raises(ConflictError, match="'acme' is suspended"):
        resume(data, schedule_id)
    data.organisation(suspended_at=None)
    assert not resume(data, schedule_id).is_suspended


@pytest.mark.parametrize(
    ("state", "columns"),
    [
        ("COMPLETED", {"end_at": timedelta(days=-1)}),
        ("PAUSED", {"end_at": timedelta(days=-1)}),
        ("INVALID_CRON", {"timezone": "Gone/City"}),
    ],
)
def test_refusal_to_resume_says_what_to_do(
    data: OrgJobsData, state: str, columns: dict[str, object]
) -> None:
    values = {
        name: data.now + to if isinstance(to, timedelta) else to for name, to in columns.items()
    }
    schedule_id = data.schedule(state=state, enabled=False, **values)
    with pytest.raises(ConflictError, match=schedule_id):
        resume(data, schedule_id)
    assert data.schedule_row(schedule_id).state == state


def test_corrected_schedule_is_resumed(data: OrgJobsData) -> None:
    assert resume(data, data.schedule(state="INVALID_CRON")).state == "ACTIVE"


def test_a_schedule_of_another_organisation_to_resume_is_not_found(data: OrgJobsData) -> None:
    theirs = data.schedule(OTHER_ORG, state="PAUSED", enabled=False)
    with pytest.raises(NotFoundError):
        resume(data, theirs)
    assert data.schedule_row(theirs).state == "PAUSED"


HOUR = timedelta(hours=1)


def add_pause(data: OrgJobsData, org_id: str = "acme", **columns: object) -> str:
    values = {
        "state": "PAUSED",
        "enabled": False,
        "pause_reason": "Holidays",
        "paused_until": data.now,
    }
    return data.schedule(org_id, **(values | columns))


def test_ended_pauses_resume_from_now(data: OrgJobsData) -> None:
    over, lasting = add_pause(data), add_pause(data, paused_until=data.now + HOUR)
    assert resume_paused_schedules(database=data.database, clock=data.clock) == [over]
    row = data.schedule_row(over)
    assert (row.state, row.enabled, iso(row.next_run_at)) == (
        "ACTIVE",
        True,
        "2026-05-05T02:00:00.000Z",
    )
    assert (row.paused_until, row.pause_reason) == (None, None)
    assert data.schedule_row(lasting).state == "PAUSED"
    assert (log_of(data, over), len(data.events("schedule.resumed"))) == (["resume"], 1)
    assert resume_paused_schedules(database=data.database, clock=data.clock) == []


def test_ended_pause_waits_for_a_suspended_organisation(data: OrgJobsData) -> None:
    waits, continues = add_pause(data, "globex"), add_pause(data)
    data.organisation("globex", suspended_at=data.now)
    assert resume_paused_schedules(database=data.database, clock=data.clock) == [continues]
    data.organisation("globex", suspended_at=None)
    assert resume_paused_schedules(database=data.database, clock=data.clock) == [waits]


def test_schedule_without_due_times_is_not_resumed(
    data: OrgJobsData,
) -> None:
    ended, broken = (
        add_pause(data, end_at=data.now - HOUR),
        add_pause(data, timezone="Gone/City"),
    )
    deleted = add_pause(data, deleted_at=data.now)
    assert resume_paused_schedules(database=data.database, clock=data.clock) == []
    states = [data.schedule_row(one).state for one in (ended, broken, deleted)]
    assert states == ["COMPLETED", "INVALID_CRON", "PAUSED"]


def test_skip_has_a_reason(data: OrgJobsData) -> None:
    schedule_id = data.schedule()
    shown = skip_next_run(schedule_id, reason="Audit", **data.context(ORG_SCOPE))
    assert (shown.skip_next_run, shown.skip_next_run_reason) == (True, "Audit")
    assert (shown.skip_next_run_requested_at, shown.version) == (data.now, 2)
    assert skip_next_run(schedule_id, **data.context(ORG_SCOPE)) == shown
    assert (
        skip_next_run(schedule_id, reason="Fair", **data.context(ORG_SCOPE)).skip_next_run_reason
        == "Fair"
    )
    assert log_of(data, schedule_id) == ["skip_next", "skip_next"]
    entry = data.audit(schedule_id)[0]
    assert (entry.before, entry.after, entry.reason) == (None, {"skipNextRun": True}, "Audit")


def test_inactive_schedule_has_no_due_time_to_skip(data: OrgJobsData) -> None:
    with pytest.raises(ConflictError, match="PAUSED"):
        skip_next_run(data.schedule(state="PAUSED", enabled=False), **data.context(ORG_SCOPE))


def test_a_schedule_of_another_organisation_to_skip_is_not_found(data: OrgJobsData) -> None:
    theirs = data.schedule(OTHER_ORG)
    with pytest.raises(NotFoundError):
        skip_next_run(theirs, **data.context(ORG_SCOPE))
    assert not data.schedule_row(theirs).skip_next_run


def test_skip_is_undone_once(data: OrgJobsData) -> None:
    values = {"skip_next_run_reason": "Audit", "skip_next_run_requested_at": data.now}
    schedule_id = data.schedule(skip_next_run=True, **values)
    shown = keep_next_run(schedule_id, **data.context(ORG_SCOPE))
    assert (shown.skip_next_run, shown.skip_next_run_reason, shown.skip_next_run_requested_at) == (
        False,
        None,
        None,
    )
    assert keep_next_run(schedule_id, **data.context(ORG_SCOPE)) == shown
    [entry] = data.audit(schedule_id)
    assert entry.action == "keep_next"
    assert entry.before == {"skipNextRun": True, "skipNextRunReason": "Audit"}
    assert entry.after == {"skipNextRun": False}


def test_a_schedule_of_another_organisation_to_keep_is_not_found(data: OrgJobsData) -> None:
    theirs = data.schedule(OTHER_ORG, skip_next_run=True)
    with pytest.raises(NotFoundError):
        keep_next_run(theirs, **data.context(ORG_SCOPE))
    assert data.schedule_row(theirs).skip_next_run


CLOSED = {"execution_window_start": "22:00", "execution_window_end": "06:00"}


def test_manual_run_does_not_change_the_next_due_time(data: OrgJobsData) -> None:
    schedule = create(data, priority=2, retryPolicy={"maxRetries": 4})
    created = run_now(data, schedule.id)
    (fire,) = data.fires(schedule.id)
    assert (fire.id, fire.trigger, fire.outcome, fire.actor) == (
        created.fire_id,
        "MANUAL",
        "DISPATCHED",
        ACTOR,
    )
    assert (fire.scheduled_for, fire.effective_for) == (data.now, data.now)
    job, run = data.job_row(created.job_id), data.run_row(created.job_id)
    assert (job.schedule_fire_id, job.created_by, job.priority, job.type) == (
        fire.id,
        ACTOR,
        2,
        "HTTPS_CALL",
    )
    assert (run.status, run.max_attempts, run.line) == ("pending", 5, schedule.id)
    row = data.schedule_row(schedule.id)
    assert (row.run_count, row.last_run_job_id, row.last_run_at) == (1, created.job_id, data.now)
    assert (row.last_dispatch_status, row.last_scheduled_for) == ("dispatched", None)
    assert (row.next_run_at, row.next_scheduled_for, row.version) == (
        schedule.next_run_at,
        schedule.next_scheduled_for,
        1,
    )
    assert log_of(data, schedule.id) == ["create", "run_now"]
    assert data.events("schedule.fired")[0].payload["trigger"] == "MANUAL"


def test_same_key_returns_the_same_job(data: OrgJobsData) -> None:
    schedule_id, other = data.schedule(), data.schedule()
    data.fire(other)  # so that the ids of fires and jobs differ
    first = run_now(data, schedule_id, client_key="k")
    assert run_now(data, schedule_id, client_key="k") == first
    assert run_now(data, other, client_key="k") != first
    assert len(data.jobs(schedule_id)) == 1


@pytest.mark.parametrize(
    "columns",
    [
        {"state": "COMPLETED"},
        {"state": "INVALID_CRON", "timezone": "Gone/City"},
        {"state": "INVALID_CRON", "cron_expression": "gone"},
    ],
)
def test_completed_or_invalid_schedule_cannot_run(
    data: OrgJobsData, columns: dict[str, Any]
) -> None:
    schedule_id = data.schedule(**columns)
    with pytest.raises(ConflictError, match=columns["state"]):
        run_now(data, schedule_id)
    assert data.jobs(schedule_id) == []


def test_paused_schedule_runs_and_stays_paused(data: OrgJobsData) -> None:
    schedule_id = data.schedule(state="PAUSED", enabled=False)
    run_now(data, schedule_id)
    row = data.schedule_row(schedule_id)
    assert (row.state, row.next_run_at, row.run_count) == ("PAUSED", None, 1)


def test_payload_replaces_that_of_the_schedule(data: OrgJobsData) -> None:
    schedule = create(data)
    created = run_now(data, schedule.id, payload={"url": "https://example.org/other"})
    assert data.job_row(created.job_id).payload["url"] == "https://example.org/other"
    with pytest.raises(InvalidInputError) as refused:
        run_now(data, schedule.id, payload={"url": 3})
    assert [field for field, _ in refused.value.fields] == ["payload.url"]


def test_manual_run_outside_the_window_is_refused_unless_it_ignores_the_window(
    data: OrgJobsData,
) -> None:
    schedule_id = data.schedule(**CLOSED)
    with pytest.raises(ConflictError, match="opens at 2026-05-04T22:00"):
        run_now(data, schedule_id)
    assert data.jobs() == []
    forced = run_now(data, schedule_id, ignore_window=True)
    assert data.job_row(forced.job_id).start_window is None
    data.set_run(data.run_row(forced.job_id).id, status="cancelled", finished_at=data.now)
    data.clock.advance(timedelta(hours=12))
    inside = run_now(data, schedule_id)
    assert data.job_row(inside.job_id).start_window == {
        "start": "22:00",
        "end": "06:00",
        "timezone": "UTC",
    }


def test_suspended_organisation_or_disabled_server_refuses_a_manual_run(data: OrgJobsData) -> None:
    server = data.server(is_enabled=False)
    with pytest.raises(ConflictError, match=f"Server {server} is not enabled"):
        run_now(data, data.schedule(server_instance_id=server))
    data.organisation(suspended_at=data.now)
    with pytest.raises(ConflictError, match="'acme' is suspended"):
        run_now(data, data.schedule())
    assert data.jobs() == []


def test_refusal_names_the_unfinished_job(data: OrgJobsData) -> None:
    schedule_id = data.schedule()
    first = run_now(data, schedule_id)
    with pytest.raises(ConflictError, match=f"Job {first.job_id} "):
        run_now(data, schedule_id)
    assert (data.schedule_row(schedule_id).run_count, len(data.fires(schedule_id))) == (
        1,
        1,
    )


@pytest.mark.parametrize(
    ("policy", "status", "is_asked"),
    [
        ("ALLOW_ALL", ("running", "pending"), False),
        ("BUFFER_ALL", ("running", "pending"), False),
        ("CANCEL_OTHER", ("running", "cancelled"), True),
        ("TERMINATE_OTHER", ("cancelled", "cancelled"), False),
    ],
)
def test_overlap_policy_decides_about_unfinished_jobs(
    data: OrgJobsData, policy: str, status: tuple[str, str], is_asked: bool
) -> None:
    schedule_id = data.schedule(overlap_policy=policy)
    at_work, waiting = (
        data.running_job(schedule_id=schedule_id),
        data.job(schedule_id=schedule_id),
    )
    created = run_now(data, schedule_id)
    assert (data.job_row(at_work).status, data.job_row(waiting).status) == status
    assert (data.run_row(at_work).cancel_requested_at is not None) == is_asked
    run = data.run_row(created.job_id)
    assert (run.status, run.line) == ("pending", None if policy == "ALLOW_ALL" else schedule_id)


@pytest.mark.parametrize(
    "columns", [{"job_type": "GONE"}, {"job_type": "HTTPS_CALL", "payload": {"url": 3}}]
)
def test_a_schedule_with_an_invalid_type_or_payload_cannot_run(
    data: OrgJobsData, columns: dict[str, Any]
) -> None:
    schedule_id = data.schedule(**columns)
    with pytest.raises(ConflictError, match="cannot run with its current values"):
        run_now(data, schedule_id)


def test_a_schedule_of_another_organisation_to_run_is_not_found(data: OrgJobsData) -> None:
    theirs = data.schedule(OTHER_ORG)
    with pytest.raises(NotFoundError, match="not found"):
        run_now(data, theirs)
    assert data.jobs() == []


def test_preview_has_words_and_due_times(database: Database) -> None:
    shown = preview_schedule(
        schedule_input(timezone="Europe/Paris", jitterS=60),
        count=3,
        after=NOW,
        org_id=None,
        database=database,
    )
    assert (shown.in_words, shown.timezone, len(shown.runs)) == (
        "At 02:00 every day",
        "Europe/Paris",
        3,
    )
    assert {run.scheduled_for == run.effective_for for run in shown.runs} == {True}
    assert all("up to 60 s" in (run.note or "") for run in shown.runs)


def test_preview_names_every_invalid_field(database: Database) -> None:
    with pytest.raises(InvalidInputError) as refused:
        preview_schedule(
            schedule_input(cronExpression="0 24 * * *", priority=0),
            count=3,
            after=NOW,
            org_id=None,
            database=database,
        )
    assert {field for field, _ in refused.value.fields} == {"cronExpression", "priority"}
    with pytest.raises(InvalidInputError) as refused:
        preview_schedule(schedule_input(), count=0, after=NOW, org_id=None, database=database)
    assert [field for field, _ in refused.value.fields] == ["count"]


def preview(data: OrgJobsData, schedule_id: str, count: int = 10) -> SchedulePreview:
    return coming_runs(
        schedule_id, within=ORG_SCOPE, database=data.database, clock=data.clock, count=count
    )


def test_first_due_time_is_the_stored_one_and_shows_the_skip(data: OrgJobsData) -> None:
    schedule_id = data.schedule(jitter_s=600, skip_next_run=True)
    shown = preview(data, schedule_id)
    assert shown.runs[0].effective_for == data.schedule_row(schedule_id).next_run_at
    assert [run.is_skipped for run in shown.runs] == [True] + 9 * [False]


def test_paused_schedule_has_no_coming_runs(data: OrgJobsData) -> None:
    schedule_id = data.schedule(state="PAUSED", enabled=False)
    assert preview(data, schedule_id).runs == ()
    with pytest.raises(InvalidInputError, match="Invalid preview data"):
        preview(data, schedule_id, count=0)


def test_a_schedule_of_another_organisation_to_preview_is_not_found(data: OrgJobsData) -> None:
    with pytest.raises(NotFoundError):
        preview(data, data.schedule(OTHER_ORG))


@pytest.mark.parametrize("state", ["ACTIVE", "PAUSED", "INVALID_CRON", "COMPLETED"])
def test_deleted_schedule_is_not_found_but_its_fires_are(data: OrgJobsData, state: str) -> None:
    schedule_id = data.schedule(state=state, paused_until=data.now)
    data.fire(schedule_id)
    delete_schedule(schedule_id, **data.context(ORG_SCOPE))
    row = data.schedule_row(schedule_id)
    assert (row.deleted_at, row.next_run_at, row.paused_until) == (data.now, None, None)
    assert row.state == ("PAUSED" if state == "ACTIVE" else state)
    with data.database.reading() as session:
        assert list_schedules(session, ORG_SCOPE, limit=10, offset=0) == []
        assert len(fires_of(session, schedule_id, ORG_SCOPE, 10)) == 1
        with pytest.raises(NotFoundError):
            get_schedule(session, schedule_id, ORG_SCOPE)
    with pytest.raises(NotFoundError):
        delete_schedule(schedule_id, **data.context(ORG_SCOPE))
    assert (log_of(data, schedule_id), len(data.events("schedule.deleted"))) == (
        ["delete"],
        1,
    )


def test_deletion_cancels_waiting_jobs_and_keeps_running_ones(data: OrgJobsData) -> None:
    schedule_id = data.schedule(last_run_job_id=None)
    waiting, at_work = (
        data.job(schedule_id=schedule_id),
        data.running_job(schedule_id=schedule_id),
    )
    other = data.job(schedule_id=data.schedule())
    delete_schedule(schedule_id, **data.context(ORG_SCOPE))
    assert [data.job_row(one).status for one in (waiting, at_work, other)] == [
        "cancelled",
        "running",
        "pending",
    ]
    assert data.run_row(waiting).error == "Its schedule was deleted."


def test_deletion_logs_the_dropped_due_time(data: OrgJobsData) -> None:
    schedule_id = data.schedule(next_run_at=data.now, next_scheduled_for=data.now)
    delete_schedule(schedule_id, **data.context(ORG_SCOPE))
    assert log_of(data, schedule_id) == ["drop_due", "delete"]


def test_a_schedule_of_another_organisation_to_delete_is_not_found(data: OrgJobsData) -> None:
    theirs = data.schedule(OTHER_ORG)
    with pytest.raises(NotFoundError):
        delete_schedule(theirs, **data.context(ORG_SCOPE))
    assert data.schedule_row(theirs).deleted_at is None
