"""An organisation that goes on: exactly what was paused with it, from now on."""

from datetime import UTC, datetime

import pytest

from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.org_jobs.models.organisations import (
    ALL_ORGANISATIONS,
    Organisation,
    OrgScope,
)
from automation_pipeline.org_jobs.organisations import resume_organisation, suspend_organisation
from automation_pipeline_tests.org_jobs.bench import ACTOR, ORG, OTHER_ORG, Bench


def suspended(bench: Bench, org_id: str = ORG) -> None:
    suspend_organisation(
        org_id, within=ALL_ORGANISATIONS, database=bench.database, clock=bench.clock, actor=ACTOR
    )


def resumed(bench: Bench, org_id: str = ORG, within: OrgScope = ALL_ORGANISATIONS) -> Organisation:
    return resume_organisation(
        org_id, within=within, database=bench.database, clock=bench.clock, actor=ACTOR
    )


def test_what_was_paused_with_it_goes_on_from_now(org_bench: Bench) -> None:
    schedule, by_hand = org_bench.schedule(), org_bench.schedule(state="PAUSED", enabled=False)
    suspended(org_bench)
    org_bench.pass_minutes(3 * 24 * 60)
    made = resumed(org_bench)
    assert (made.suspended_at, made.suspend_reason) == (None, None)
    row = org_bench.schedule_row(schedule)
    assert (row.state, row.is_suspended, row.pause_reason) == ("ACTIVE", False, None)
    assert row.next_run_at == row.next_scheduled_for == datetime(2026, 5, 8, 2, tzinfo=UTC)
    assert org_bench.schedule_row(by_hand).state == "PAUSED"
    assert org_bench.moves("schedule", schedule) == [("ACTIVE", "PAUSED"), ("PAUSED", "ACTIVE")]
    assert [event.payload["scheduleId"] for event in org_bench.events("schedule.resumed")] == [
        schedule
    ]
    assert org_bench.audit(ORG)[-1].after == {"resumed": 1}


def test_what_somebody_paused_meanwhile_stays_paused(org_bench: Bench) -> None:
    schedule = org_bench.schedule()
    suspended(org_bench)
    org_bench.set_schedule(schedule, enabled=False, is_suspended=False)
    resumed(org_bench)
    assert org_bench.schedule_row(schedule).state == "PAUSED"


@pytest.mark.parametrize(
    ("columns", "state"),
    [
        ({"end_at": datetime(2026, 5, 5, tzinfo=UTC)}, "COMPLETED"),
        ({"end_at": datetime(2026, 5, 6, 23, tzinfo=UTC)}, "COMPLETED"),
        ({"timezone": "Europe/Atlantis"}, "INVALID_CRON"),
    ],
)
def test_what_is_never_due_again_does_not_go_on(
    columns: dict[str, object], state: str, org_bench: Bench
) -> None:
    broken, well = org_bench.schedule(), org_bench.schedule()
    suspended(org_bench)
    org_bench.set_schedule(broken, **columns)
    org_bench.pass_minutes(2 * 24 * 60)
    resumed(org_bench)
    row = org_bench.schedule_row(broken)
    assert (row.state, row.next_run_at, row.is_suspended) == (state, None, False)
    assert org_bench.schedule_row(well).state == "ACTIVE"


def test_one_that_is_not_suspended_stays_as_it_is(org_bench: Bench) -> None:
    schedule = org_bench.schedule()
    resumed(org_bench)
    assert org_bench.schedule_row(schedule).version == 1
    assert org_bench.audit() == []


@pytest.mark.parametrize("org_id", [OTHER_ORG, "nobody"])
def test_anothers_is_not_there(org_id: str, org_bench: Bench) -> None:
    schedule = org_bench.schedule(OTHER_ORG)
    suspended(org_bench, OTHER_ORG)
    with pytest.raises(NotFoundError, match=f"Organisation {org_id} not found"):
        resumed(org_bench, org_id, OrgScope(ORG))
    assert org_bench.schedule_row(schedule).state == "PAUSED"
