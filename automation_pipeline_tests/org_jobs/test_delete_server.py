"""A server goes when no schedule and no job names it."""

import pytest
from sqlalchemy import select

from automation_pipeline.core.errors import ConflictError, NotFoundError
from automation_pipeline.org_jobs.models.organisations import ALL_ORGANISATIONS, OrgScope
from automation_pipeline.org_jobs.organisations import delete_server
from automation_pipeline.org_jobs.tables import ServerRow
from automation_pipeline_tests.org_jobs.bench import ACTOR, ORG, OTHER_ORG, Bench


def deleted(bench: Bench, server_id: int, within: OrgScope = ALL_ORGANISATIONS) -> None:
    delete_server(server_id, within=within, database=bench.database, clock=bench.clock, actor=ACTOR)


def servers(bench: Bench) -> list[int]:
    return list(bench.rows(select(ServerRow.id).order_by(ServerRow.id)))


def test_one_that_nothing_names_goes(org_bench: Bench) -> None:
    server, other = org_bench.server(name="one"), org_bench.server()
    schedule = org_bench.schedule(server_instance_id=server, deleted_at=org_bench.now)
    deleted(org_bench, server, OrgScope(ORG))
    assert servers(org_bench) == [other]
    assert org_bench.schedule_row(schedule).server_instance_id is None
    [entry] = org_bench.audit(str(server))
    assert (entry.action, entry.before["name"]) == ("delete", "one")


def test_one_with_schedules_stays(org_bench: Bench) -> None:
    server = org_bench.server()
    org_bench.schedule(server_instance_id=server)
    with pytest.raises(
        ConflictError, match=f"Server {server} has 1 schedules: delete them, or move them"
    ):
        deleted(org_bench, server)
    assert servers(org_bench) == [server]


def test_one_with_jobs_stays_even_when_they_are_over(org_bench: Bench) -> None:
    server = org_bench.server()
    org_bench.job(
        server_instance_id=server, run={"status": "cancelled", "finished_at": org_bench.now}
    )
    with pytest.raises(ConflictError, match=r"has 1 jobs.*isEnabled: false"):
        deleted(org_bench, server)
    assert servers(org_bench) == [server]


def test_anothers_is_not_there(org_bench: Bench) -> None:
    theirs = org_bench.server(OTHER_ORG)
    for server_id in (theirs, theirs + 99):
        with pytest.raises(NotFoundError, match=f"^Server {server_id} not found"):
            deleted(org_bench, server_id, OrgScope(ORG))
    assert servers(org_bench) == [theirs]
