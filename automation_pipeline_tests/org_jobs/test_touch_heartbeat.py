"""What is known of an agent by its being heard of."""

from datetime import datetime, timedelta

import pytest
from sqlalchemy import select

from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.org_jobs.agents import touch_heartbeat
from automation_pipeline.org_jobs.models.organisations import ALL_ORGANISATIONS, OrgScope
from automation_pipeline.storage.clock import database_now
from automation_pipeline_tests.org_jobs.bench import OTHER_ORG, Bench

LONG_AGO = timedelta(days=400)


def present(bench: Bench, seconds: float = 0.0) -> datetime:
    """By the database's clock."""
    with bench.database.reading() as session:
        return session.scalars(select(database_now(seconds))).one()


def greet(  # noqa: ANN201  what the use case answers
    bench: Bench, host_id: int, within: OrgScope = ALL_ORGANISATIONS, version: str | None = None
):
    return touch_heartbeat(host_id, within=within, database=bench.database, agent_version=version)


@pytest.mark.parametrize("before", [None, LONG_AGO])
def test_a_host_is_seen_by_the_databases_clock(org_bench: Bench, before: timedelta | None) -> None:
    earlier = present(org_bench)
    host_id = org_bench.host(last_seen_at=None if before is None else earlier - before)
    host = greet(org_bench, host_id)
    assert host.last_seen_at is not None
    assert earlier <= host.last_seen_at <= present(org_bench)
    assert org_bench.host_row(host_id).last_seen_at == host.last_seen_at


def test_it_is_not_written_down_again_at_once(org_bench: Bench) -> None:
    # It lies ahead, so that no time that passes here makes it old.
    ahead = present(org_bench, 3600)
    host_id = org_bench.host(last_seen_at=ahead)
    assert greet(org_bench, host_id).last_seen_at == ahead
    before = present(org_bench)
    org_bench.set_host(host_id, last_seen_at=present(org_bench, -16))
    last_seen_at = greet(org_bench, host_id).last_seen_at
    assert last_seen_at is not None
    assert last_seen_at >= before


def test_another_version_is_written_down_at_once_and_none_is_forgotten(org_bench: Bench) -> None:
    host_id = org_bench.host(last_seen_at=present(org_bench, 3600))
    assert greet(org_bench, host_id, version="1.0").agent_version == "1.0"
    assert greet(org_bench, host_id, version="1.1").agent_version == "1.1"
    assert greet(org_bench, host_id).agent_version == "1.1"


def test_a_host_of_another_organisation_does_not_exist(org_bench: Bench) -> None:
    host_id = org_bench.host(OTHER_ORG)
    before = org_bench.host_row(host_id).last_seen_at
    with pytest.raises(NotFoundError, match=f"Host {host_id} not found"):
        greet(org_bench, host_id, OrgScope("acme"))
    assert org_bench.host_row(host_id).last_seen_at == before
    with pytest.raises(NotFoundError, match=r"Host 987654 not found"):
        greet(org_bench, 987654)
    assert greet(org_bench, host_id, OrgScope(OTHER_ORG)).org_id == OTHER_ORG
