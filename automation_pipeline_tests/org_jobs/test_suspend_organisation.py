"""A suspended organisation: its active schedules are paused with it, and nothing else changes."""

import pytest

from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.org_jobs.models.organisations import (
    ALL_ORGANISATIONS,
    Organisation,
    OrgScope,
)
from automation_pipeline.org_jobs.organisations import suspend_organisation
from automation_pipeline.org_jobs.queries.schedules import SUSPENDED_WORDS
from automation_pipeline_tests.org_jobs.bench import ACTOR, ORG, OTHER_ORG, Bench


def suspended(
    bench: Bench,
    org_id: str = ORG,
    within: OrgScope = ALL_ORGANISATIONS,
    reason: str | None = "Unpaid.",
) -> Organisation:
    return suspend_organisation(
        org_id,
        within=within,
        database=bench.database,
        clock=bench.clock,
        actor=ACTOR,
        reason=reason,
    )


def test_its_active_schedules_wait_for_it(org_bench: Bench) -> None:
    active, other = org_bench.schedule(), org_bench.schedule(OTHER_ORG)
    gone = org_bench.schedule(deleted_at=org_bench.now)
    made = suspended(org_bench)
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


@pytest.mark.parametrize("state", ["PAUSED", "INVALID_CRON", "COMPLETED"])
def test_what_is_not_active_stays_what_it_is(state: str, org_bench: Bench) -> None:
    schedule = org_bench.schedule(state=state, enabled=False, pause_reason="By hand")
    suspended(org_bench)
    row = org_bench.schedule_row(schedule)
    assert (row.state, row.is_suspended, row.pause_reason) == (state, False, "By hand")


def test_a_second_time_changes_nothing(org_bench: Bench) -> None:
    org_bench.organisation()
    first = suspended(org_bench)
    org_bench.pass_minutes(1)
    assert suspended(org_bench, reason="Again") == first
    assert len(org_bench.audit(ORG)) == 1


@pytest.mark.parametrize("org_id", [OTHER_ORG, "nobody"])
def test_anothers_is_not_there(org_id: str, org_bench: Bench) -> None:
    schedule = org_bench.schedule(OTHER_ORG)
    with pytest.raises(NotFoundError, match=f"Organisation {org_id} not found"):
        suspended(org_bench, org_id, OrgScope(ORG))
    assert org_bench.schedule_row(schedule).state == "ACTIVE"
