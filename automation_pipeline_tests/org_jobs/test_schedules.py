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
from automation_pipeline_tests.org_jobs.bench import ACTOR, ORG, OTHER_ORG, Bench
from automation_pipeline_tests.org_jobs.rules.schedules import NOW, schedule_input
from automation_pipeline_tests.org_jobs.scheduling import (
    MINE,
    created,
    log_of,
    paused,
    resumed,
    run_now,
    updated,
    world,
)


def test_enabled_schedule_is_active_and_due(org_bench: Bench) -> None:
    schedule = created(org_bench, retryPolicy={"maxRetries": 1}, excludedOn=["2026-05-05"])
    row = org_bench.schedule_row(schedule.id)
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


def test_disabled_schedule_is_paused_without_a_due_time(org_bench: Bench) -> None:
    schedule = created(org_bench, enabled=False)
    assert (schedule.state, schedule.next_run_at, schedule.next_scheduled_for) == (
        "PAUSED",
        None,
        None,
    )


def test_creation_has_an_event_and_an_audit_entry(org_bench: Bench) -> None:
    schedule = created(org_bench)
    (entry,) = org_bench.audit(schedule.id)
    assert (entry.action, entry.entity, entry.actor, entry.before) == (
        "create",
        "schedule",
        ACTOR,
        None,
    )
    assert entry.after["cronExpression"] == "0 2 * * *"
    (event,) = org_bench.events()
    assert (event.name, event.tenant_id, event.payload["scheduleId"]) == (
        "schedule.created",
        ORG,
        schedule.id,
    )


def test_new_schedule_of_a_suspended_organisation_is_paused(org_bench: Bench) -> None:
    org_bench.organisation(suspended_at=org_bench.now)
    row = org_bench.schedule_row(created(org_bench).id)
    assert (row.state, row.enabled, row.is_suspended, row.next_run_at) == (
        "PAUSED",
        True,
        True,
        None,
    )
    assert not org_bench.schedule_row(created(org_bench, enabled=False).id).is_suspended


def test_server_must_belong_to_the_organisation(org_bench: Bench) -> None:
    agents = {"jobType": "SERVER_RESTART", "payload": {}}
    server, theirs = org_bench.server(), org_bench.server(OTHER_ORG)
    assert created(org_bench, **agents, serverInstanceId=str(server)).server_instance_id == server
    for wrong in (theirs, theirs + 1000):
        with pytest.raises(InvalidInputError) as refused:
            created(org_bench, **agents, serverInstanceId=wrong)
        assert refused.value.fields == (
            ("serverInstanceId", "is not a server of organisation 'acme'"),
        )
    assert len(org_bench.audit()) == 1


@pytest.mark.parametrize("days", [-1, 0.1])
def test_schedule_without_due_times_is_refused(org_bench: Bench, days: float) -> None:
    with pytest.raises(InvalidInputError) as refused:
        created(org_bench, endAt=iso(org_bench.now + timedelta(days=days)))
    assert [field for field, _ in refused.value.fields] == ["endAt"]


def test_other_organisation_is_not_found(org_bench: Bench) -> None:
    with pytest.raises(NotFoundError) as theirs:
        created(org_bench, OTHER_ORG)
    assert str(theirs.value) == "Organisation globex not found"
    assert created(org_bench, OTHER_ORG, ALL_ORGANISATIONS).org_id == OTHER_ORG
    assert MINE.org_id == ORG


def test_change_of_the_name_keeps_the_due_time(org_bench: Bench) -> None:
    before = created(org_bench)
    org_bench.pass_minutes(1)
    after = updated(org_bench, before.id, name="Other", description=None)
    assert (after.name, after.version, after.updated_at) == ("Other", 2, org_bench.now)
    assert (after.state, after.next_run_at) == (before.state, before.next_run_at)
    entry = org_bench.audit(before.id)[-1]
    assert (entry.action, entry.before, entry.after) == (
        "update",
        {"name": "Nightly"},
        {"name": "Other"},
    )
    assert org_bench.events("schedule.updated")[0].payload["changed"] == ["name"]


def test_empty_change_writes_nothing(org_bench: Bench) -> None:
    before = created(org_bench)
    org_bench.pass_minutes(1)
    assert updated(org_bench, before.id, name="Nightly", priority=5) == before
    assert log_of(org_bench, before.id) == ["create"]


def test_new_cron_counts_from_now_and_logs_the_dropped_due_time(
    org_bench: Bench,
) -> None:
    before = created(org_bench, cronExpression="0 11 * * *")
    org_bench.pass_minutes(90)
    after = updated(org_bench, before.id, cronExpression="0 12 * * *")
    assert iso(after.next_run_at) == "2026-05-04T12:00:00.000Z"
    assert log_of(org_bench, before.id) == ["create", "drop_due", "update"]
    dropped = org_bench.audit(before.id)[1]
    assert dropped.before == {
        "nextRunAt": "2026-05-04T11:00:00.000Z",
        "nextScheduledFor": "2026-05-04T11:00:00.000Z",
    }


def test_due_time_that_waits_for_its_window_is_logged_when_dropped(org_bench: Bench) -> None:
    window = {"executionWindowStart": "22:00", "executionWindowEnd": "23:00"}
    before = created(org_bench, cronExpression="0 11 * * *", **window)
    org_bench.pass_minutes(90)
    updated(org_bench, before.id, jitterS=60)
    assert "drop_due" in log_of(org_bench, before.id)


def test_enabled_field_pauses_and_resumes(org_bench: Bench) -> None:
    schedule = created(org_bench)
    off = updated(org_bench, schedule.id, enabled=False)
    assert (off.state, off.next_run_at) == ("PAUSED", None)
    org_bench.set_schedule(
        schedule.id, pause_reason="10 failures in a row", consecutive_failures=10
    )
    on = updated(org_bench, schedule.id, enabled=True)
    assert (on.state, on.pause_reason, on.consecutive_failures) == ("ACTIVE", None, 0)
    assert org_bench.moves("schedule", schedule.id) == [("ACTIVE", "PAUSED"), ("PAUSED", "ACTIVE")]


def test_schedule_toggled_twice_within_a_second_is_due_once(org_bench: Bench) -> None:
    schedule = created(org_bench)
    for enabled in (False, True, False, True):
        last = updated(org_bench, schedule.id, enabled=enabled)
    assert (last.next_run_at, last.version) == (schedule.next_run_at, 5)


def test_new_cron_of_a_paused_schedule_keeps_the_pause(org_bench: Bench) -> None:
    schedule = created(org_bench)
    paused(org_bench, schedule.id, reason="Holidays")
    after = updated(org_bench, schedule.id, cronExpression="0 3 * * *")
    assert (after.state, after.pause_reason, after.next_run_at) == ("PAUSED", "Holidays", None)


@pytest.mark.parametrize("is_enabled", [True, False])
def test_invalid_schedule_is_corrected(org_bench: Bench, is_enabled: bool) -> None:
    broken = {
        "state": "INVALID_CRON",
        "timezone": "Gone/City",
        "next_run_at": None,
        "enabled": is_enabled,
    }
    schedule_id = org_bench.schedule(**broken)
    with pytest.raises(InvalidInputError) as refused:
        updated(org_bench, schedule_id, name="Other")
    assert [field for field, _ in refused.value.fields] == ["timezone"]
    after = updated(org_bench, schedule_id, timezone="Europe/Paris")
    assert after.state == ("ACTIVE" if is_enabled else "PAUSED")
    assert (after.next_run_at is not None) == is_enabled


def test_completed_schedule_continues_with_a_later_end(org_bench: Bench) -> None:
    schedule_id = org_bench.schedule(state="COMPLETED", end_at=org_bench.now - timedelta(days=1))
    assert updated(org_bench, schedule_id, name="Other").state == "COMPLETED"
    assert (
        updated(org_bench, schedule_id, endAt=iso(org_bench.now + timedelta(days=9))).state
        == "ACTIVE"
    )
    assert updated(org_bench, schedule_id, endAt=iso(org_bench.now)).state == "COMPLETED"
    assert updated(org_bench, schedule_id, endAt=None).state == "ACTIVE"


def test_schedule_of_a_suspended_organisation_stays_paused_after_a_change(org_bench: Bench) -> None:
    schedule = created(org_bench, enabled=False)
    org_bench.organisation(suspended_at=org_bench.now)
    waits = updated(org_bench, schedule.id, enabled=True)
    assert (waits.state, waits.enabled, waits.is_suspended) == ("PAUSED", True, True)
    retimed = updated(org_bench, schedule.id, cronExpression="0 3 * * *")
    assert (retimed.state, retimed.is_suspended) == ("PAUSED", True)
    off = updated(org_bench, schedule.id, enabled=False)
    assert (off.state, off.is_suspended, off.pause_reason) == ("PAUSED", False, None)


def test_new_server_must_belong_to_the_organisation(org_bench: Bench) -> None:
    schedule_id, theirs = org_bench.schedule(), org_bench.server(OTHER_ORG)
    with pytest.raises(InvalidInputError) as refused:
        updated(org_bench, schedule_id, serverInstanceId=theirs)
    assert [field for field, _ in refused.value.fields] == ["serverInstanceId"]


def test_a_schedule_of_another_organisation_to_update_is_not_found(org_bench: Bench) -> None:
    theirs = org_bench.schedule(OTHER_ORG)
    with pytest.raises(NotFoundError, match="not found"):
        updated(org_bench, theirs, name="Mine")
    with pytest.raises(NotFoundError):
        updated(org_bench, "no\0such", name="Mine")
    assert updated(org_bench, theirs, within=OrgScope(OTHER_ORG), name="Theirs").name == "Theirs"


def test_paused_schedule_is_not_due_until_it_is_resumed(org_bench: Bench) -> None:
    schedule = created(org_bench)
    until = org_bench.now + timedelta(days=1)
    shown = paused(org_bench, schedule.id, reason="Holidays", until=until)
    assert (shown.state, shown.enabled, shown.next_run_at, shown.next_scheduled_for) == (
        "PAUSED",
        False,
        None,
        None,
    )
    assert (shown.pause_reason, shown.paused_until) == ("Holidays", until)
    assert org_bench.moves("schedule", schedule.id) == [("ACTIVE", "PAUSED")]
    assert org_bench.audit(schedule.id)[-1].reason == "Holidays"
    assert org_bench.events("schedule.paused")[0].payload["reason"] == "Holidays"


def test_second_pause_without_a_reason_changes_nothing(org_bench: Bench) -> None:
    schedule = created(org_bench)
    first = paused(org_bench, schedule.id, reason="Holidays")
    assert paused(org_bench, schedule.id) == first
    again = paused(org_bench, schedule.id, reason="Repairs")
    assert (again.pause_reason, again.state) == ("Repairs", "PAUSED")
    assert log_of(org_bench, schedule.id) == ["create", "pause", "pause"]


def test_pause_logs_the_dropped_due_time(org_bench: Bench) -> None:
    schedule = created(org_bench, cronExpression="0 11 * * *")
    org_bench.pass_minutes(61)
    paused(org_bench, schedule.id)
    assert log_of(org_bench, schedule.id) == ["create", "drop_due", "pause"]


def test_schedule_paused_by_an_operator_is_not_resumed_with_its_organisation(
    org_bench: Bench,
) -> None:
    schedule_id = org_bench.schedule(
        state="PAUSED", is_suspended=True, pause_reason="Its organisation is suspended."
    )
    shown = paused(org_bench, schedule_id)
    assert (shown.enabled, shown.is_suspended, shown.pause_reason) == (False, False, None)


@pytest.mark.parametrize("state", ["COMPLETED", "INVALID_CRON"])
def test_schedule_without_due_times_cannot_be_paused(org_bench: Bench, state: str) -> None:
    with pytest.raises(ConflictError):
        paused(org_bench, org_bench.schedule(state=state))


def test_end_of_a_pause_must_be_in_the_future(org_bench: Bench) -> None:
    with pytest.raises(InvalidInputError) as refused:
        paused(org_bench, org_bench.schedule(), until=org_bench.now)
    assert refused.value.fields == (("until", "must be in the future"),)


def test_a_schedule_of_another_organisation_to_pause_is_not_found(org_bench: Bench) -> None:
    theirs = org_bench.schedule(OTHER_ORG)
    with pytest.raises(NotFoundError):
        paused(org_bench, theirs)
    assert org_bench.schedule_row(theirs).state == "ACTIVE"


def test_resumed_schedule_is_due_from_now_on(org_bench: Bench) -> None:
    schedule = created(org_bench)
    paused(org_bench, schedule.id, reason="Holidays", until=org_bench.now + timedelta(days=9))
    org_bench.set_schedule(schedule.id, consecutive_failures=10)
    org_bench.pass_minutes(3 * 24 * 60)
    shown = resumed(org_bench, schedule.id)
    assert (shown.state, shown.enabled, iso(shown.next_run_at)) == (
        "ACTIVE",
        True,
        "2026-05-08T02:00:00.000Z",
    )
    assert (shown.pause_reason, shown.paused_until, shown.consecutive_failures) == (None, None, 0)
    assert log_of(org_bench, schedule.id) == ["create", "pause", "resume"]
    assert len(org_bench.events("schedule.resumed")) == 1


def test_active_schedule_stays_unchanged(org_bench: Bench) -> None:
    schedule = created(org_bench)
    org_bench.pass_minutes(3 * 24 * 60)
    assert resumed(org_bench, schedule.id) == schedule
    assert log_of(org_bench, schedule.id) == ["create"]


def test_decided_due_time_is_not_repeated_when_the_clock_is_set_back(
    org_bench: Bench,
) -> None:
    decided = org_bench.now.replace(day=6, hour=2)
    schedule_id = org_bench.schedule(state="PAUSED", enabled=False, last_scheduled_for=decided)
    assert resumed(org_bench, schedule_id).next_scheduled_for == decided + timedelta(days=1)


def test_schedule_of_a_suspended_organisation_cannot_be_resumed(org_bench: Bench) -> None:
    schedule_id = org_bench.schedule(state="PAUSED", is_suspended=True)
    org_bench.organisation(suspended_at=org_bench.now)
    with pytest.raises(ConflictError, match="'acme' is suspended"):
        resumed(org_bench, schedule_id)
    org_bench.organisation(suspended_at=None)
    assert not resumed(org_bench, schedule_id).is_suspended


@pytest.mark.parametrize(
    ("state", "columns"),
    [
        ("COMPLETED", {"end_at": timedelta(days=-1)}),
        ("PAUSED", {"end_at": timedelta(days=-1)}),
        ("INVALID_CRON", {"timezone": "Gone/City"}),
    ],
)
def test_refusal_to_resume_says_what_to_do(
    org_bench: Bench, state: str, columns: dict[str, object]
) -> None:
    values = {
        name: org_bench.now + to if isinstance(to, timedelta) else to
        for name, to in columns.items()
    }
    schedule_id = org_bench.schedule(state=state, enabled=False, **values)
    with pytest.raises(ConflictError, match=schedule_id):
        resumed(org_bench, schedule_id)
    assert org_bench.schedule_row(schedule_id).state == state


def test_corrected_schedule_is_resumed(org_bench: Bench) -> None:
    assert resumed(org_bench, org_bench.schedule(state="INVALID_CRON")).state == "ACTIVE"


def test_a_schedule_of_another_organisation_to_resume_is_not_found(org_bench: Bench) -> None:
    theirs = org_bench.schedule(OTHER_ORG, state="PAUSED", enabled=False)
    with pytest.raises(NotFoundError):
        resumed(org_bench, theirs)
    assert org_bench.schedule_row(theirs).state == "PAUSED"


HOUR = timedelta(hours=1)


def a_pause(bench: Bench, org_id: str = "acme", **columns: object) -> str:
    values = {
        "state": "PAUSED",
        "enabled": False,
        "pause_reason": "Holidays",
        "paused_until": bench.now,
    }
    return bench.schedule(org_id, **(values | columns))


def test_ended_pauses_resume_from_now(org_bench: Bench) -> None:
    over, lasting = a_pause(org_bench), a_pause(org_bench, paused_until=org_bench.now + HOUR)
    assert resume_paused_schedules(database=org_bench.database, clock=org_bench.clock) == [over]
    row = org_bench.schedule_row(over)
    assert (row.state, row.enabled, iso(row.next_run_at)) == (
        "ACTIVE",
        True,
        "2026-05-05T02:00:00.000Z",
    )
    assert (row.paused_until, row.pause_reason) == (None, None)
    assert org_bench.schedule_row(lasting).state == "PAUSED"
    assert (log_of(org_bench, over), len(org_bench.events("schedule.resumed"))) == (["resume"], 1)
    assert resume_paused_schedules(database=org_bench.database, clock=org_bench.clock) == []


def test_ended_pause_waits_for_a_suspended_organisation(org_bench: Bench) -> None:
    waits, goes_on = a_pause(org_bench, "globex"), a_pause(org_bench)
    org_bench.organisation("globex", suspended_at=org_bench.now)
    assert resume_paused_schedules(database=org_bench.database, clock=org_bench.clock) == [goes_on]
    org_bench.organisation("globex", suspended_at=None)
    assert resume_paused_schedules(database=org_bench.database, clock=org_bench.clock) == [waits]


def test_schedule_without_due_times_is_not_resumed(
    org_bench: Bench,
) -> None:
    ended, broken = (
        a_pause(org_bench, end_at=org_bench.now - HOUR),
        a_pause(org_bench, timezone="Gone/City"),
    )
    deleted = a_pause(org_bench, deleted_at=org_bench.now)
    assert resume_paused_schedules(database=org_bench.database, clock=org_bench.clock) == []
    states = [org_bench.schedule_row(one).state for one in (ended, broken, deleted)]
    assert states == ["COMPLETED", "INVALID_CRON", "PAUSED"]


def test_skip_has_a_reason(org_bench: Bench) -> None:
    schedule_id = org_bench.schedule()
    shown = skip_next_run(schedule_id, reason="Audit", **world(org_bench))
    assert (shown.skip_next_run, shown.skip_next_run_reason) == (True, "Audit")
    assert (shown.skip_next_run_requested_at, shown.version) == (org_bench.now, 2)
    assert skip_next_run(schedule_id, **world(org_bench)) == shown
    assert (
        skip_next_run(schedule_id, reason="Fair", **world(org_bench)).skip_next_run_reason == "Fair"
    )
    assert log_of(org_bench, schedule_id) == ["skip_next", "skip_next"]


def test_inactive_schedule_has_no_due_time_to_skip(org_bench: Bench) -> None:
    with pytest.raises(ConflictError, match="PAUSED"):
        skip_next_run(org_bench.schedule(state="PAUSED", enabled=False), **world(org_bench))


def test_a_schedule_of_another_organisation_to_skip_is_not_found(org_bench: Bench) -> None:
    theirs = org_bench.schedule(OTHER_ORG)
    with pytest.raises(NotFoundError):
        skip_next_run(theirs, **world(org_bench))
    assert not org_bench.schedule_row(theirs).skip_next_run


def test_skip_is_undone_once(org_bench: Bench) -> None:
    values = {"skip_next_run_reason": "Audit", "skip_next_run_requested_at": org_bench.now}
    schedule_id = org_bench.schedule(skip_next_run=True, **values)
    shown = keep_next_run(schedule_id, **world(org_bench))
    assert (shown.skip_next_run, shown.skip_next_run_reason, shown.skip_next_run_requested_at) == (
        False,
        None,
        None,
    )
    assert keep_next_run(schedule_id, **world(org_bench)) == shown
    assert log_of(org_bench, schedule_id) == ["keep_next"]


def test_a_schedule_of_another_organisation_to_keep_is_not_found(org_bench: Bench) -> None:
    theirs = org_bench.schedule(OTHER_ORG, skip_next_run=True)
    with pytest.raises(NotFoundError):
        keep_next_run(theirs, **world(org_bench))
    assert org_bench.schedule_row(theirs).skip_next_run


CLOSED = {"execution_window_start": "22:00", "execution_window_end": "06:00"}


def test_manual_run_does_not_change_the_next_due_time(org_bench: Bench) -> None:
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


def test_same_key_returns_the_same_job(org_bench: Bench) -> None:
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
def test_completed_or_invalid_schedule_cannot_run(
    org_bench: Bench, columns: dict[str, Any]
) -> None:
    schedule_id = org_bench.schedule(**columns)
    with pytest.raises(ConflictError, match=columns["state"]):
        run_now(org_bench, schedule_id)
    assert org_bench.jobs(schedule_id) == []


def test_paused_schedule_runs_and_stays_paused(org_bench: Bench) -> None:
    schedule_id = org_bench.schedule(state="PAUSED", enabled=False)
    run_now(org_bench, schedule_id)
    row = org_bench.schedule_row(schedule_id)
    assert (row.state, row.next_run_at, row.run_count) == ("PAUSED", None, 1)


def test_payload_replaces_that_of_the_schedule(org_bench: Bench) -> None:
    schedule = created(org_bench)
    made = run_now(org_bench, schedule.id, payload={"url": "https://example.org/other"})
    assert org_bench.job_row(made.job_id).payload["url"] == "https://example.org/other"
    with pytest.raises(InvalidInputError) as refused:
        run_now(org_bench, schedule.id, payload={"url": 3})
    assert [field for field, _ in refused.value.fields] == ["payload.url"]


def test_manual_run_outside_the_window_is_refused_unless_it_ignores_the_window(
    org_bench: Bench,
) -> None:
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


def test_suspended_organisation_or_disabled_server_refuses_a_manual_run(org_bench: Bench) -> None:
    server = org_bench.server(is_enabled=False)
    with pytest.raises(ConflictError, match=f"Server {server} is not enabled"):
        run_now(org_bench, org_bench.schedule(server_instance_id=server))
    org_bench.organisation(suspended_at=org_bench.now)
    with pytest.raises(ConflictError, match="'acme' is suspended"):
        run_now(org_bench, org_bench.schedule())
    assert org_bench.jobs() == []


def test_refusal_names_the_unfinished_job(org_bench: Bench) -> None:
    schedule_id = org_bench.schedule()
    first = run_now(org_bench, schedule_id)
    with pytest.raises(ConflictError, match=f"Job {first.job_id} "):
        run_now(org_bench, schedule_id)
    assert (org_bench.schedule_row(schedule_id).run_count, len(org_bench.fires(schedule_id))) == (
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
    org_bench: Bench, policy: str, status: tuple[str, str], is_asked: bool
) -> None:
    schedule_id = org_bench.schedule(overlap_policy=policy)
    at_work, waiting = (
        org_bench.running_job(schedule_id=schedule_id),
        org_bench.job(schedule_id=schedule_id),
    )
    made = run_now(org_bench, schedule_id)
    assert (org_bench.job_row(at_work).status, org_bench.job_row(waiting).status) == status
    assert (org_bench.run_row(at_work).cancel_requested_at is not None) == is_asked
    run = org_bench.run_row(made.job_id)
    assert (run.status, run.line) == ("pending", None if policy == "ALLOW_ALL" else schedule_id)


@pytest.mark.parametrize(
    "columns", [{"job_type": "GONE"}, {"job_type": "HTTPS_CALL", "payload": {"url": 3}}]
)
def test_a_schedule_with_an_invalid_type_or_payload_cannot_run(
    org_bench: Bench, columns: dict[str, Any]
) -> None:
    schedule_id = org_bench.schedule(**columns)
    with pytest.raises(ConflictError, match="cannot run with its current values"):
        run_now(org_bench, schedule_id)


def test_a_schedule_of_another_organisation_to_run_is_not_found(org_bench: Bench) -> None:
    theirs = org_bench.schedule(OTHER_ORG)
    with pytest.raises(NotFoundError, match="not found"):
        run_now(org_bench, theirs)
    assert org_bench.jobs() == []


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


def preview(bench: Bench, schedule_id: str, count: int = 10) -> SchedulePreview:
    return coming_runs(
        schedule_id, within=MINE, database=bench.database, clock=bench.clock, count=count
    )


def test_first_due_time_is_the_stored_one_and_shows_the_skip(org_bench: Bench) -> None:
    schedule_id = org_bench.schedule(jitter_s=600, skip_next_run=True)
    shown = preview(org_bench, schedule_id)
    assert shown.runs[0].effective_for == org_bench.schedule_row(schedule_id).next_run_at
    assert [run.is_skipped for run in shown.runs] == [True] + 9 * [False]


def test_paused_schedule_has_no_coming_runs(org_bench: Bench) -> None:
    assert preview(org_bench, org_bench.schedule(state="PAUSED", enabled=False)).runs == ()


def test_a_schedule_of_another_organisation_to_preview_is_not_found(org_bench: Bench) -> None:
    with pytest.raises(NotFoundError):
        preview(org_bench, org_bench.schedule(OTHER_ORG))


@pytest.mark.parametrize("state", ["ACTIVE", "PAUSED", "INVALID_CRON", "COMPLETED"])
def test_deleted_schedule_is_not_found_but_its_fires_are(org_bench: Bench, state: str) -> None:
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


def test_deletion_cancels_waiting_jobs_and_keeps_running_ones(org_bench: Bench) -> None:
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


def test_deletion_logs_the_dropped_due_time(org_bench: Bench) -> None:
    schedule_id = org_bench.schedule(next_run_at=org_bench.now, next_scheduled_for=org_bench.now)
    delete_schedule(schedule_id, **world(org_bench))
    assert log_of(org_bench, schedule_id) == ["drop_due", "delete"]


def test_a_schedule_of_another_organisation_to_delete_is_not_found(org_bench: Bench) -> None:
    theirs = org_bench.schedule(OTHER_ORG)
    with pytest.raises(NotFoundError):
        delete_schedule(theirs, **world(org_bench))
    assert org_bench.schedule_row(theirs).deleted_at is None
