"""Create, change, suspend and resume organisations."""

from datetime import UTC, datetime, timedelta

import pytest

from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import ConflictError, InvalidInputError, NotFoundError
from automation_pipeline.org_jobs.models.organisations import ALL_ORGANISATIONS, OrgScope
from automation_pipeline.org_jobs.organisations import (
    create_organisation,
    resume_organisation,
    suspend_organisation,
    update_organisation,
)
from automation_pipeline.org_jobs.queries.organisations import get_organisation, list_organisations
from automation_pipeline.org_jobs.queries.schedules import SUSPENDED_WORDS
from automation_pipeline_tests.org_jobs.data import ACTOR, ORG, OTHER_ORG, OrgJobsData

GIVEN = {"id": "acme", "name": "Acme", "maxRunning": 3}


def test_a_new_organisation_is_stored_and_logged(data: OrgJobsData) -> None:
    created = create_organisation(GIVEN, **data.context())
    with data.database.reading() as session:
        assert get_organisation(session, "acme", ALL_ORGANISATIONS) == created
    assert (created.id, created.name, created.max_running, created.suspended_at) == (
        "acme",
        "Acme",
        3,
        None,
    )
    assert created.created_at == created.updated_at == data.now
    [entry] = data.audit("acme")
    assert (entry.org_id, entry.actor, entry.action, entry.entity) == (
        "acme",
        ACTOR,
        "create",
        "organisation",
    )
    assert entry.after == {**GIVEN, "maintenanceUntil": None}


def test_invalid_organisation_is_not_stored(data: OrgJobsData) -> None:
    for org_id in ("acme", "globex"):
        with pytest.raises(ConflictError, match="cannot create others"):
            create_organisation(GIVEN, **data.context(OrgScope(org_id)))
    with pytest.raises(InvalidInputError):
        create_organisation({**GIVEN, "maxRunning": 0}, **data.context())
    assert data.audit() == []
    created = create_organisation(GIVEN, **data.context())
    with pytest.raises(ConflictError, match="There is an organisation 'acme' already"):
        create_organisation({**GIVEN, "name": "Other"}, **data.context())
    with data.database.reading() as session:
        assert list_organisations(session, ALL_ORGANISATIONS, limit=10, offset=0) == [created]


def test_a_change_is_stored_and_logged(data: OrgJobsData) -> None:
    data.organisation(max_running=5)
    until = data.now + timedelta(hours=1)
    data.advance_minutes(1)
    patch = {"maxRunning": 7, "maintenanceUntil": iso(until)}
    changed = update_organisation(ORG, patch, **data.context())
    assert (changed.name, changed.max_running, changed.maintenance_until) == ("Acme", 7, until)
    assert changed.updated_at == data.now > changed.created_at
    [entry] = data.audit("acme")
    assert entry.before == {"maxRunning": 5, "maintenanceUntil": None}
    assert entry.after == patch
    ended = update_organisation(ORG, {"maintenanceUntil": None}, **data.context())
    assert ended.maintenance_until is None


def test_a_patch_with_the_stored_values_changes_nothing(data: OrgJobsData) -> None:
    data.organisation()
    data.advance_minutes(1)
    for patch in ({}, {"name": " Acme "}):
        assert update_organisation(ORG, patch, **data.context()).updated_at < data.now
    assert data.audit() == []


def test_invalid_patch_changes_nothing(data: OrgJobsData) -> None:
    data.organisation()
    for patch in ({"name": None}, {"maxRunning": 0}, {"id": "other"}, {"suspendedAt": None}):
        with pytest.raises(InvalidInputError):
            update_organisation(ORG, {"name": "New", **patch}, **data.context())
    assert data.organisation_row().name == "Acme"


def test_a_caller_cannot_access_another_organisation(data: OrgJobsData) -> None:
    schedule = data.schedule(OTHER_ORG)
    data.organisation()
    mine = data.context(OrgScope(ORG))
    for org_id in (OTHER_ORG, "unknown", "a\0", "\ud800"):
        for refused_call in (
            lambda org_id=org_id: update_organisation(org_id, {"name": "New"}, **mine),
            lambda org_id=org_id: suspend_organisation(org_id, **mine),
            lambda org_id=org_id: resume_organisation(org_id, **mine),
        ):
            with pytest.raises(NotFoundError, match=r"^Organisation .* not found$"):
                refused_call()
    assert data.organisation_row(OTHER_ORG).name == "Globex"
    assert data.schedule_row(schedule).state == "ACTIVE"


def test_suspending_pauses_the_active_schedules(data: OrgJobsData) -> None:
    active, other = data.schedule(), data.schedule(OTHER_ORG)
    gone = data.schedule(deleted_at=data.now)
    created = suspend_organisation(ORG, reason="Unpaid.", **data.context())
    assert (created.suspended_at, created.suspend_reason) == (data.now, "Unpaid.")
    row = data.schedule_row(active)
    assert (row.state, row.enabled, row.is_suspended, row.next_run_at) == (
        "PAUSED",
        True,
        True,
        None,
    )
    assert row.pause_reason == f"{SUSPENDED_WORDS} Unpaid."
    assert data.schedule_row(other).state == data.schedule_row(gone).state == "ACTIVE"
    assert data.transitions("schedule", active) == [("ACTIVE", "PAUSED")]
    [event] = data.events("schedule.paused")
    assert event.payload["scheduleId"] == active
    [entry] = data.audit(ORG)
    assert (entry.action, entry.after, entry.reason) == ("suspend", {"paused": 1}, "Unpaid.")
    data.advance_minutes(1)
    assert suspend_organisation(ORG, reason="Again", **data.context()) == created
    assert len(data.audit(ORG)) == 1


def test_suspending_does_not_change_other_states(data: OrgJobsData) -> None:
    states = ("PAUSED", "INVALID_CRON", "COMPLETED")
    schedules = {
        state: data.schedule(state=state, enabled=False, pause_reason="By hand") for state in states
    }
    suspend_organisation(ORG, **data.context())
    for state, schedule in schedules.items():
        row = data.schedule_row(schedule)
        assert (row.state, row.is_suspended, row.pause_reason) == (state, False, "By hand")


def test_resuming_continues_suspended_schedules_from_now(data: OrgJobsData) -> None:
    schedule, by_hand = data.schedule(), data.schedule(state="PAUSED", enabled=False)
    not_suspended = data.schedule()
    suspend_organisation(ORG, **data.context())
    data.set_schedule(not_suspended, enabled=False, is_suspended=False)
    data.advance_minutes(3 * 24 * 60)
    created = resume_organisation(ORG, **data.context())
    assert (created.suspended_at, created.suspend_reason) == (None, None)
    assert created.updated_at == data.now
    row = data.schedule_row(schedule)
    assert (row.state, row.is_suspended, row.pause_reason) == ("ACTIVE", False, None)
    assert row.next_run_at == row.next_scheduled_for == datetime(2026, 5, 8, 2, tzinfo=UTC)
    paused = [data.schedule_row(one).state for one in (by_hand, not_suspended)]
    assert paused == ["PAUSED", "PAUSED"]
    assert data.transitions("schedule", schedule) == [("ACTIVE", "PAUSED"), ("PAUSED", "ACTIVE")]
    [event] = data.events("schedule.resumed")
    assert event.payload["scheduleId"] == schedule
    [*_, entry] = data.audit(ORG)
    assert (entry.action, entry.after) == ("resume", {"resumed": 1})


def test_resuming_completes_schedules_without_due_times(data: OrgJobsData) -> None:
    changes = {
        data.schedule(): ({"end_at": datetime(2026, 5, 5, tzinfo=UTC)}, "COMPLETED"),
        data.schedule(): ({"end_at": datetime(2026, 5, 6, 23, tzinfo=UTC)}, "COMPLETED"),
        data.schedule(): ({"timezone": "Europe/Atlantis"}, "INVALID_CRON"),
    }
    valid = data.schedule()
    suspend_organisation(ORG, **data.context())
    for schedule, (columns, _) in changes.items():
        data.set_schedule(schedule, **columns)
    data.advance_minutes(2 * 24 * 60)
    resume_organisation(ORG, **data.context())
    for schedule, (_, state) in changes.items():
        row = data.schedule_row(schedule)
        assert (row.state, row.next_run_at, row.is_suspended) == (state, None, False)
    assert data.schedule_row(valid).state == "ACTIVE"


def test_resuming_a_running_organisation_changes_nothing(data: OrgJobsData) -> None:
    schedule = data.schedule()
    resume_organisation(ORG, **data.context())
    assert data.schedule_row(schedule).version == 1
    assert data.audit() == []
