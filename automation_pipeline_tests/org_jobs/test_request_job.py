"""Jobs without a schedule: what may be asked for, by whom, and what is stored of it."""

import pytest

from automation_pipeline.core.errors import InvalidInputError, NotFoundError
from automation_pipeline.org_jobs.jobs import request_job
from automation_pipeline.org_jobs.models.jobs import OrgJob
from automation_pipeline.org_jobs.models.organisations import ALL_ORGANISATIONS, OrgScope
from automation_pipeline_tests.org_jobs.bench import ORG, OTHER_ORG, Bench

CALL = {"type": "HTTPS_CALL", "payload": {"url": "https://example.com/warm"}}


def request(
    bench: Bench,
    given: dict[str, object],
    *,
    org_id: str = ORG,
    within: OrgScope = ALL_ORGANISATIONS,
) -> OrgJob:
    return request_job(
        given,
        org_id=org_id,
        within=within,
        database=bench.database,
        clock=bench.clock,
        actor="user:1",
    )


def test_a_job_of_this_system_waits_for_its_turn(org_bench: Bench) -> None:
    org_bench.organisation()
    job = request(org_bench, {**CALL, "priority": 2})
    assert (job.org_id, job.type, job.performer, job.priority, job.status) == (
        ORG,
        "HTTPS_CALL",
        "service",
        2,
        "pending",
    )
    assert (job.created_by, job.schedule_id, job.payload["url"]) == (
        "user:1",
        None,
        "https://example.com/warm",
    )
    retries = job.retry_policy
    assert (retries.max_retries, retries.backoff_ms, retries.backoff_type) == (
        2,
        2000,
        "exponential",
    )
    [run] = job.runs
    assert (run.status, run.attempt_no, run.max_attempts) == ("pending", 1, 3)
    [entry] = org_bench.audit(str(job.id))
    assert (entry.action, entry.entity, entry.actor) == ("request", "job", "user:1")


def test_a_job_of_an_agent_is_about_a_server(org_bench: Bench) -> None:
    host_id = org_bench.host()
    server_id = org_bench.server(host_id=host_id)
    wish = {"type": "restart", "serverInstanceId": str(server_id), "retryPolicy": {"maxRetries": 0}}
    job = request(org_bench, wish, within=OrgScope(ORG))
    assert (job.type, job.server_instance_id, job.performer) == (
        "SERVER_RESTART",
        server_id,
        "agent",
    )
    assert (job.runs[0].host_id, job.runs[0].max_attempts) == (host_id, 1)


@pytest.mark.parametrize(
    ("given", "fields"),
    [
        ({}, {"type"}),
        ({"type": "NO_SUCH"}, {"type"}),
        ({"type": "SERVER_START"}, {"serverInstanceId"}),
        ({"type": "SERVER_START", "serverInstanceId": 4711}, {"serverInstanceId"}),
        ({**CALL, "serverInstanceId": 1}, {"serverInstanceId"}),
        ({"type": "HTTPS_CALL"}, {"payload.url"}),
        ({**CALL, "priority": 10}, {"priority"}),
        ({**CALL, "retryPolicy": {"maxRetries": 11}}, {"retryPolicy.maxRetries"}),
        ({**CALL, "cron": "* * * * *"}, {"cron"}),
    ],
)
def test_every_field_at_fault_is_named(
    org_bench: Bench, given: dict[str, object], fields: set[str]
) -> None:
    org_bench.organisation()
    with pytest.raises(InvalidInputError, match="Invalid job data") as refused:
        request(org_bench, given)
    assert {field for field, _ in refused.value.fields} == fields
    assert org_bench.jobs() == []


def test_an_organisation_that_is_not_reached_does_not_exist(org_bench: Bench) -> None:
    org_bench.organisation(OTHER_ORG)
    for org_id in (OTHER_ORG, "nobody"):
        with pytest.raises(NotFoundError, match=f"Organisation {org_id} not found"):
            request(org_bench, CALL, org_id=org_id, within=OrgScope(ORG))


def test_a_server_of_another_organisation_is_none_of_this_one(org_bench: Bench) -> None:
    strange = org_bench.server(OTHER_ORG)
    org_bench.organisation()
    with pytest.raises(InvalidInputError) as refused:
        request(org_bench, {"type": "SERVER_START", "serverInstanceId": strange})
    assert refused.value.fields == (
        ("serverInstanceId", f"is not a server of organisation '{ORG}'"),
    )
