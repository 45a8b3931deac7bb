"""A host goes when nothing is on it; what was done there stays."""

import pytest
from sqlalchemy import select

from automation_pipeline.core.errors import ConflictError, NotFoundError
from automation_pipeline.org_jobs.models.organisations import ALL_ORGANISATIONS, OrgScope
from automation_pipeline.org_jobs.organisations import delete_host
from automation_pipeline.org_jobs.tables import HostRow
from automation_pipeline_tests.org_jobs.bench import ACTOR, ORG, OTHER_ORG, Bench


def deleted(bench: Bench, host_id: int, within: OrgScope = ALL_ORGANISATIONS) -> None:
    delete_host(host_id, within=within, database=bench.database, clock=bench.clock, actor=ACTOR)


def hosts(bench: Bench) -> list[int]:
    return list(bench.rows(select(HostRow.id).order_by(HostRow.id)))


def test_one_that_is_free_goes_and_its_jobs_stay(org_bench: Bench) -> None:
    host_id, other = org_bench.host(name="eu-1"), org_bench.host()
    job_id = org_bench.job(
        host_id=host_id, run={"status": "cancelled", "finished_at": org_bench.now}
    )
    deleted(org_bench, host_id, OrgScope(ORG))
    assert hosts(org_bench) == [other]
    assert (org_bench.run_row(job_id).host_id, org_bench.run_row(job_id).status) == (
        None,
        "cancelled",
    )
    [entry] = org_bench.audit(str(host_id))
    assert (entry.action, entry.before) == ("delete", {"name": "eu-1", "maintenanceUntil": None})


def test_one_with_servers_stays(org_bench: Bench) -> None:
    host_id = org_bench.host()
    org_bench.server(host_id=host_id)
    with pytest.raises(
        ConflictError, match=f"Host {host_id} has 1 servers: delete them, or move them"
    ):
        deleted(org_bench, host_id)
    assert hosts(org_bench) == [host_id]


def test_one_whose_agent_is_at_work_stays(org_bench: Bench) -> None:
    host_id = org_bench.host()
    org_bench.running_job(host_id=host_id)
    with pytest.raises(ConflictError, match="is not done: wait for 1 jobs, or cancel them"):
        deleted(org_bench, host_id)


def test_anothers_is_not_there(org_bench: Bench) -> None:
    theirs = org_bench.host(OTHER_ORG)
    for host_id in (theirs, theirs + 99):
        with pytest.raises(NotFoundError, match=f"^Host {host_id} not found"):
            deleted(org_bench, host_id, OrgScope(ORG))
    assert hosts(org_bench) == [theirs]
