"""A new schedule."""

from datetime import timedelta

import pytest

from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import InvalidInputError, NotFoundError
from automation_pipeline.org_jobs.models.organisations import ALL_ORGANISATIONS
from automation_pipeline_tests.org_jobs.bench import ACTOR, ORG, OTHER_ORG, Bench
from automation_pipeline_tests.org_jobs.scheduling import MINE, created


def test_one_that_is_enabled_is_active_and_due(org_bench: Bench) -> None:
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


def test_one_that_is_not_enabled_is_paused_and_never_due(org_bench: Bench) -> None:
    schedule = created(org_bench, enabled=False)
    assert (schedule.state, schedule.next_run_at, schedule.next_scheduled_for) == (
        "PAUSED",
        None,
        None,
    )


def test_it_is_told_and_written_down(org_bench: Bench) -> None:
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


def test_in_an_organisation_that_is_suspended_it_waits_with_the_others(org_bench: Bench) -> None:
    org_bench.organisation(suspended_at=org_bench.now)
    row = org_bench.schedule_row(created(org_bench).id)
    assert (row.state, row.enabled, row.is_suspended, row.next_run_at) == (
        "PAUSED",
        True,
        True,
        None,
    )
    assert not org_bench.schedule_row(created(org_bench, enabled=False).id).is_suspended


def test_its_server_is_one_of_its_organisation(org_bench: Bench) -> None:
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
def test_one_that_is_never_due_is_refused(org_bench: Bench, days: float) -> None:
    with pytest.raises(InvalidInputError) as refused:
        created(org_bench, endAt=iso(org_bench.now + timedelta(days=days)))
    assert [field for field, _ in refused.value.fields] == ["endAt"]


def test_another_organisation_is_not_found_like_one_that_does_not_exist(org_bench: Bench) -> None:
    with pytest.raises(NotFoundError) as theirs:
        created(org_bench, OTHER_ORG)
    assert str(theirs.value) == "Organisation globex not found"
    assert created(org_bench, OTHER_ORG, ALL_ORGANISATIONS).org_id == OTHER_ORG
    assert MINE.org_id == ORG
