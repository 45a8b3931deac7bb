"""A new host: of one organisation, under a name that none of its others has."""

import pytest

from automation_pipeline.core.errors import ConflictError, NotFoundError
from automation_pipeline.org_jobs.models.organisations import ALL_ORGANISATIONS, Host, OrgScope
from automation_pipeline.org_jobs.organisations import create_host
from automation_pipeline.org_jobs.queries.organisations import get_host, list_hosts
from automation_pipeline_tests.org_jobs.bench import ACTOR, ORG, OTHER_ORG, Bench


def created(
    bench: Bench, name: str = "eu-1", org_id: str = ORG, within: OrgScope = ALL_ORGANISATIONS
) -> Host:
    given = {"name": name}
    return create_host(
        given, org_id=org_id, within=within, database=bench.database, clock=bench.clock, actor=ACTOR
    )


def test_it_is_stored_and_noted(org_bench: Bench) -> None:
    org_bench.organisation()
    made = created(org_bench, within=OrgScope(ORG))
    with org_bench.database.reading() as session:
        assert get_host(session, made.id, OrgScope(ORG)) == made
    assert (made.name, made.org_id, made.last_seen_at, made.agent_version) == (
        "eu-1",
        ORG,
        None,
        None,
    )
    [entry] = org_bench.audit(str(made.id))
    assert (entry.org_id, entry.action, entry.entity) == (ORG, "create", "host")


def test_a_name_is_taken_once_in_an_organisation(org_bench: Bench) -> None:
    for org_id in (ORG, OTHER_ORG):
        org_bench.organisation(org_id)
        created(org_bench, org_id=org_id)
    with pytest.raises(ConflictError, match="Organisation 'acme' has a host 'eu-1' already"):
        created(org_bench)
    with org_bench.database.reading() as session:
        assert len(list_hosts(session, ALL_ORGANISATIONS, limit=10, offset=0)) == 2


@pytest.mark.parametrize("org_id", [OTHER_ORG, "nobody"])
def test_anothers_organisation_is_not_there(org_id: str, org_bench: Bench) -> None:
    org_bench.organisation(OTHER_ORG)
    with pytest.raises(NotFoundError, match=f"Organisation {org_id} not found"):
        created(org_bench, org_id=org_id, within=OrgScope(ORG))
    with org_bench.database.reading() as session:
        assert list_hosts(session, ALL_ORGANISATIONS, limit=10, offset=0) == []
