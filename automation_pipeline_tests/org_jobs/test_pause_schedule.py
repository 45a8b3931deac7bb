"""A schedule that is taken out of use."""

from datetime import timedelta

import pytest

from automation_pipeline.core.errors import ConflictError, InvalidInputError, NotFoundError
from automation_pipeline_tests.org_jobs.bench import OTHER_ORG, Bench
from automation_pipeline_tests.org_jobs.scheduling import created, log_of, paused


def test_it_is_not_due_until_somebody_resumes_it(org_bench: Bench) -> None:
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


def test_paused_again_without_a_word_it_stays_as_it_is(org_bench: Bench) -> None:
    schedule = created(org_bench)
    first = paused(org_bench, schedule.id, reason="Holidays")
    assert paused(org_bench, schedule.id) == first
    again = paused(org_bench, schedule.id, reason="Repairs")
    assert (again.pause_reason, again.state) == ("Repairs", "PAUSED")
    assert log_of(org_bench, schedule.id) == ["create", "pause", "pause"]


def test_what_is_due_already_is_dropped_with_a_note(org_bench: Bench) -> None:
    schedule = created(org_bench, cronExpression="0 11 * * *")
    org_bench.pass_minutes(61)
    paused(org_bench, schedule.id)
    assert log_of(org_bench, schedule.id) == ["create", "drop_due", "pause"]


def test_one_that_is_paused_with_its_organisation_is_not_resumed_with_it_any_more(
    org_bench: Bench,
) -> None:
    schedule_id = org_bench.schedule(
        state="PAUSED", is_suspended=True, pause_reason="Its organisation is suspended."
    )
    shown = paused(org_bench, schedule_id)
    assert (shown.enabled, shown.is_suspended, shown.pause_reason) == (False, False, None)


@pytest.mark.parametrize("state", ["COMPLETED", "INVALID_CRON"])
def test_one_that_is_not_due_any_more_cannot_be_paused(org_bench: Bench, state: str) -> None:
    with pytest.raises(ConflictError):
        paused(org_bench, org_bench.schedule(state=state))


def test_until_lies_ahead(org_bench: Bench) -> None:
    with pytest.raises(InvalidInputError) as refused:
        paused(org_bench, org_bench.schedule(), until=org_bench.now)
    assert refused.value.fields == (("until", "must lie ahead"),)


def test_that_of_another_organisation_is_not_found(org_bench: Bench) -> None:
    theirs = org_bench.schedule(OTHER_ORG)
    with pytest.raises(NotFoundError):
        paused(org_bench, theirs)
    assert org_bench.schedule_row(theirs).state == "ACTIVE"
