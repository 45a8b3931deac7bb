"""Create, change, suspend and resume organisations."""

from datetime import UTC, datetime, timedelta
from typing import Any

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
from automation_pipeline_tests.org_jobs.bench import ACTOR, ORG, OTHER_ORG, Bench

GIVEN = {"id": "acme", "name": "Acme", "maxRunning": 3}


def by(bench: Bench, within: OrgScope = ALL_ORGANISATIONS) -> dict[str, Any]:
    return {"within": within, "database": bench.database, "clock": bench.clock, "actor": ACTOR}


def test_a_new_organisation_is_stored_and_logged(org_bench: Bench) -> None:
    made = create_organisation(GIVEN, **by(org_bench))
    with org_bench.database.reading() as session:
        assert get_organisation(session, "acme", ALL_ORGANISATIONS) == made
    assert (made.id, made.name, made.max_running, made.suspended_at) == ("acme", "Acme", 3, None)
    assert made.created_at == made.updated_at == org_bench.now
    [entry] = org_bench.audit("acme")
    assert (entry.org_id, entry.actor, entry.action, entry.entity) == (
        "acme",
        ACTOR,
        "create",
        "organisation",
    )
    assert entry.after == {**GIVEN, "maintenanceUntil": None}


def test_invalid_organisation_is_not_stored(org_bench: Bench) -> None:
    for org_id in ("acme", "globex"):
        with pytest.raises(ConflictError, match="cannot create others"):
            create_organisation(GIVEN, **by(org_bench, OrgScope(org_id)))
    with pytest.raises(InvalidInputError):
        create_organisation({**GIVEN, "maxRunning": 0}, **by(org_bench))
    assert org_bench.audit() == []
    made = create_organisation(GIVEN, **by(org_bench))
    with pytest.raises(ConflictError, match="There is an organisation 'acme' already"):
        create_organisation({**GIVEN, "name": "Other"}, **by(org_bench))
    with org_bench.database.reading() as session:
        assert list_organisations(session, ALL_ORGANISATIONS, limit=10, offset=0) == [made]


def test_a_change_is_stored_and_logged(org_bench: Bench) -> None:
    org_bench.organisation(max_running=5)
    until = org_bench.now + timedelta(hours=1)
    org_bench.pass_minutes(1)
    patch = {"maxRunning": 7, "maintenanceUntil": iso(until)}
    changed = update_organisation(ORG, patch, **by(org_bench))
    assert (changed.name, changed.max_running, changed.maintenance_until) == ("Acme", 7, until)
    assert changed.updated_at == org_bench.now > changed.created_at
    [entry] = org_bench.audit("acme")
    assert entry.before == {"maxRunning": 5, "maintenanceUntil": None}
    assert entry.after == patch
    ended = update_organisation(ORG, {"maintenanceUntil": None}, **by(org_bench))
    assert ended.maintenance_until is None


def test_a_patch_with_the_stored_values_changes_nothing(org_bench: Bench) -> None:
    org_bench.organisation()
    org_bench.pass_minutes(1)
    for patch in ({}, {"name": " Acme "}):
        assert update_organisation(ORG, patch, **by(org_bench)).updated_at < org_bench.now
    assert org_bench.audit() == []


def test_invalid_patch_changes_nothing(org_bench: Bench) -> None:
    org_bench.organisation()
    for patch in ({"name": None}, {"maxRunning": 0}, {"id": "other"}, {"suspendedAt": None}):
        with pytest.raises(InvalidInputError):
            update_organisation(ORG, {"name": "New", **patch}, **by(org_bench))
    assert org_bench.organisation_row().name == "Acme"


def test_a_caller_cannot_access_another_organisation(org_bench: Bench) -> None:
    schedule = org_bench.schedule(OTHER_ORG)
    org_bench.organisation()
    mine = by(org_bench, OrgScope(ORG))
    for org_id in (OTHER_ORG, "unknown", "a\0", "\ud800"):
        for refused_call in (
            lambda org_id=org_id: update_organisation(org_id, {"name": "New"}, **mine),
            lambda org_id=org_id: suspend_organisation(org_id, **mine),
            lambda org_id=org_id: resume_organisation(org_id, **mine),
        ):
            with pytest.raises(NotFoundError, match=r"^Organisation .* not found$"):
                refused_call()
    assert org_bench.organisation_row(OTHER_ORG).name == "Globex"
    assert org_bench.schedule_row(schedule).state == "ACTIVE"


def test_suspending_pauses_the_active_schedules(org_bench: Bench) -> None:
    active, other = org_bench.schedule(), org_bench.schedule(OTHER_ORG)
    gone = org_bench.schedule(deleted_at=org_bench.now)
    made = suspend_organisation(ORG, reason="Unpaid.", **by(org_bench))
    assert (made.suspended_at, made.suspend_reason) == (org_bench.now, "Unpaid.")
    row = org_bench.schedule_row(active)
    assert (row.state, row.enabled, row.is_suspended, row.next_run_at) == (
        "PAUSED",
        True,
        True,
        None,
    )
    assert row.pause_reason == f"{SUSPENDED_WORDS} Unpaid."
    assert org_bench.schedule_row(other).state == org_bench.schedule_row(gone).state == "ACTIVE"
    assert org_bench.moves("schedule", active) == [("ACTIVE", "PAUSED")]
    [event] = org_bench.events("schedule.paused")
    assert event.payload["scheduleId"] == active
    [entry] = org_bench.audit(ORG)
    assert (entry.action, entry.after, entry.reason) == ("suspend", {"paused": 1}, "Unpaid.")
    org_bench.pass_minutes(1)
    assert suspend_organisation(ORG, reason="Again", **by(org_bench)) == made
    assert len(org_bench.audit(ORG)) == 1


def test_suspending_leaves_other_states_alone(org_bench: Bench) -> None:
    states = ("PAUSED", "INVALID_CRON", "COMPLETED")
    schedules = {
        state: org_bench.schedule(state=state, enabled=False, pause_reason="By hand")
        for state in states
    }
    suspend_organisation(ORG, **by(org_bench))
    for state, schedule in schedules.items():
        row = org_bench.schedule_row(schedule)
        assert (row.state, row.is_suspended, row.pause_reason) == (state, False, "By hand")


def test_resuming_continues_suspended_schedules_from_now(org_bench: Bench) -> None:
    schedule, by_hand = org_bench.schedule(), org_bench.schedule(state="PAUSED", enabled=False)
    not_suspended = org_bench.schedule()
    suspend_organisation(ORG, **by(org_bench))
    org_bench.set_schedule(not_suspended, enabled=False, is_suspended=False)
    org_bench.pass_minutes(3 * 24 * 60)
    made = resume_organisation(ORG, **by(org_bench))
    assert (made.suspended_at, made.suspend_reason) == (None, None)
    assert made.updated_at == org_bench.now
    row = org_bench.schedule_row(schedule)
    assert (row.state, row.is_suspended, row.pause_reason) == ("ACTIVE", False, None)
    assert row.next_run_at == row.next_scheduled_for == datetime(2026, 5, 8, 2, tzinfo=UTC)
    paused = [org_bench.schedule_row(one).state for one in (by_hand, not_suspended)]
    assert paused == ["PAUSED", "PAUSED"]
    assert org_bench.moves("schedule", schedule) == [("ACTIVE", "PAUSED"), ("PAUSED", "ACTIVE")]
    [event] = org_bench.events("schedule.resumed")
    assert event.payload["scheduleId"] == schedule
    [*_, entry] = org_bench.audit(ORG)
    assert (entry.action, entry.after) == ("resume", {"resumed": 1})


def test_resuming_completes_schedules_without_due_times(org_bench: Bench) -> None:
    changes = {
        org_bench.schedule(): ({"end_at": datetime(2026, 5, 5, tzinfo=UTC)}, "COMPLETED"),
        org_bench.schedule(): ({"end_at": datetime(2026, 5, 6, 23, tzinfo=UTC)}, "COMPLETED"),
        org_bench.schedule(): ({"timezone": "Europe/Atlantis"}, "INVALID_CRON"),
    }
    well = org_bench.schedule()
    suspend_organisation(ORG, **by(org_bench))
    for schedule, (columns, _) in changes.items():
        org_bench.set_schedule(schedule, **columns)
    org_bench.pass_minutes(2 * 24 * 60)
    resume_organisation(ORG, **by(org_bench))
    for schedule, (_, state) in changes.items():
        row = org_bench.schedule_row(schedule)
        assert (row.state, row.next_run_at, row.is_suspended) == (state, None, False)
    assert org_bench.schedule_row(well).state == "ACTIVE"


def test_resuming_a_running_organisation_changes_nothing(org_bench: Bench) -> None:
    schedule = org_bench.schedule()
    resume_organisation(ORG, **by(org_bench))
    assert org_bench.schedule_row(schedule).version == 1
    assert org_bench.audit() == []
