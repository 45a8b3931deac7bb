"""A change of what a schedule says."""

from datetime import timedelta

import pytest

from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import InvalidInputError, NotFoundError
from automation_pipeline.org_jobs.models.organisations import OrgScope
from automation_pipeline_tests.org_jobs.bench import OTHER_ORG, Bench
from automation_pipeline_tests.org_jobs.scheduling import created, log_of, paused, updated


def test_a_change_of_words_keeps_when_it_is_due(org_bench: Bench) -> None:
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


def test_a_patch_that_changes_nothing_writes_nothing(org_bench: Bench) -> None:
    before = created(org_bench)
    org_bench.pass_minutes(1)
    assert updated(org_bench, before.id, name="Nightly", priority=5) == before
    assert log_of(org_bench, before.id) == ["create"]


def test_another_time_counts_from_now_and_the_due_time_that_is_dropped_is_written_down(
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


def test_what_waits_for_its_window_is_dropped_with_a_note_too(org_bench: Bench) -> None:
    window = {"executionWindowStart": "22:00", "executionWindowEnd": "23:00"}
    before = created(org_bench, cronExpression="0 11 * * *", **window)
    org_bench.pass_minutes(90)
    updated(org_bench, before.id, jitterS=60)
    assert "drop_due" in log_of(org_bench, before.id)


def test_enabled_pauses_and_resumes(org_bench: Bench) -> None:
    schedule = created(org_bench)
    off = updated(org_bench, schedule.id, enabled=False)
    assert (off.state, off.next_run_at) == ("PAUSED", None)
    org_bench.set_schedule(
        schedule.id, pause_reason="10 failures in a row", consecutive_failures=10
    )
    on = updated(org_bench, schedule.id, enabled=True)
    assert (on.state, on.pause_reason, on.consecutive_failures) == ("ACTIVE", None, 0)
    assert org_bench.moves("schedule", schedule.id) == [("ACTIVE", "PAUSED"), ("PAUSED", "ACTIVE")]


def test_enabled_toggled_twice_within_a_second_is_due_once(org_bench: Bench) -> None:
    schedule = created(org_bench)
    for enabled in (False, True, False, True):
        last = updated(org_bench, schedule.id, enabled=enabled)
    assert (last.next_run_at, last.version) == (schedule.next_run_at, 5)


def test_another_time_of_one_that_is_paused_keeps_its_pause(org_bench: Bench) -> None:
    schedule = created(org_bench)
    paused(org_bench, schedule.id, reason="Holidays")
    after = updated(org_bench, schedule.id, cronExpression="0 3 * * *")
    assert (after.state, after.pause_reason, after.next_run_at) == ("PAUSED", "Holidays", None)


@pytest.mark.parametrize("is_enabled", [True, False])
def test_one_that_could_not_be_read_is_corrected(org_bench: Bench, is_enabled: bool) -> None:
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


def test_one_that_is_over_goes_on_with_a_later_end(org_bench: Bench) -> None:
    schedule_id = org_bench.schedule(state="COMPLETED", end_at=org_bench.now - timedelta(days=1))
    assert updated(org_bench, schedule_id, name="Other").state == "COMPLETED"
    assert (
        updated(org_bench, schedule_id, endAt=iso(org_bench.now + timedelta(days=9))).state
        == "ACTIVE"
    )
    assert updated(org_bench, schedule_id, endAt=iso(org_bench.now)).state == "COMPLETED"
    assert updated(org_bench, schedule_id, endAt=None).state == "ACTIVE"


def test_what_would_go_on_waits_for_its_organisation(org_bench: Bench) -> None:
    schedule = created(org_bench, enabled=False)
    org_bench.organisation(suspended_at=org_bench.now)
    waits = updated(org_bench, schedule.id, enabled=True)
    assert (waits.state, waits.enabled, waits.is_suspended) == ("PAUSED", True, True)
    retimed = updated(org_bench, schedule.id, cronExpression="0 3 * * *")
    assert (retimed.state, retimed.is_suspended) == ("PAUSED", True)
    off = updated(org_bench, schedule.id, enabled=False)
    assert (off.state, off.is_suspended, off.pause_reason) == ("PAUSED", False, None)


def test_its_server_must_be_one_of_its_organisation(org_bench: Bench) -> None:
    schedule_id, theirs = org_bench.schedule(), org_bench.server(OTHER_ORG)
    with pytest.raises(InvalidInputError) as refused:
        updated(org_bench, schedule_id, serverInstanceId=theirs)
    assert [field for field, _ in refused.value.fields] == ["serverInstanceId"]


def test_that_of_another_organisation_is_not_found(org_bench: Bench) -> None:
    theirs = org_bench.schedule(OTHER_ORG)
    with pytest.raises(NotFoundError, match="not found"):
        updated(org_bench, theirs, name="Mine")
    with pytest.raises(NotFoundError):
        updated(org_bench, "no\0such", name="Mine")
    assert updated(org_bench, theirs, within=OrgScope(OTHER_ORG), name="Theirs").name == "Theirs"
