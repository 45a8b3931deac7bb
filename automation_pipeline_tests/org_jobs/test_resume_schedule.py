"""A schedule that is taken into use again."""

from datetime import timedelta

import pytest

from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import ConflictError, NotFoundError
from automation_pipeline_tests.org_jobs.bench import OTHER_ORG, Bench
from automation_pipeline_tests.org_jobs.scheduling import created, log_of, paused, resumed


def test_it_is_due_from_now_on_whatever_it_missed(org_bench: Bench) -> None:
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


def test_one_that_is_active_stays_as_it_is(org_bench: Bench) -> None:
    schedule = created(org_bench)
    org_bench.pass_minutes(3 * 24 * 60)
    assert resumed(org_bench, schedule.id) == schedule
    assert log_of(org_bench, schedule.id) == ["create"]


def test_what_was_decided_upon_does_not_come_again_when_the_clock_is_set_back(
    org_bench: Bench,
) -> None:
    decided = org_bench.now.replace(day=6, hour=2)
    schedule_id = org_bench.schedule(state="PAUSED", enabled=False, last_scheduled_for=decided)
    assert resumed(org_bench, schedule_id).next_scheduled_for == decided + timedelta(days=1)


def test_of_an_organisation_that_is_suspended_it_cannot_be_resumed(org_bench: Bench) -> None:
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
def test_one_that_is_never_due_again_says_what_to_do(
    org_bench: Bench, state: str, columns: dict[str, object]
) -> None:
    said = {
        name: org_bench.now + to if isinstance(to, timedelta) else to
        for name, to in columns.items()
    }
    schedule_id = org_bench.schedule(state=state, enabled=False, **said)
    with pytest.raises(ConflictError, match=schedule_id):
        resumed(org_bench, schedule_id)
    assert org_bench.schedule_row(schedule_id).state == state


def test_one_that_can_be_read_again_goes_on(org_bench: Bench) -> None:
    assert resumed(org_bench, org_bench.schedule(state="INVALID_CRON")).state == "ACTIVE"


def test_that_of_another_organisation_is_not_found(org_bench: Bench) -> None:
    theirs = org_bench.schedule(OTHER_ORG, state="PAUSED", enabled=False)
    with pytest.raises(NotFoundError):
        resumed(org_bench, theirs)
    assert org_bench.schedule_row(theirs).state == "PAUSED"
