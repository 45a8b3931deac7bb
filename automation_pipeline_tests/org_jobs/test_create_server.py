"""A new server: of one organisation, on a host of that and of no other."""

import pytest

from automation_pipeline.core.errors import ConflictError, InvalidInputError, NotFoundError
from automation_pipeline.org_jobs.models.organisations import ALL_ORGANISATIONS, OrgScope, Server
from automation_pipeline.org_jobs.organisations import create_server
from automation_pipeline.org_jobs.queries.organisations import get_server, list_servers
from automation_pipeline_tests.org_jobs.bench import ACTOR, ORG, OTHER_ORG, Bench


def created(
    bench: Bench, org_id: str = ORG, within: OrgScope = ALL_ORGANISATIONS, **given: object
) -> Server:
    wish = {"name": "one", **given}
    return create_server(
        wish, org_id=org_id, within=within, database=bench.database, clock=bench.clock, actor=ACTOR
    )


def test_it_is_stored_and_noted(org_bench: Bench) -> None:
    host_id = org_bench.host()
    made = created(org_bench, within=OrgScope(ORG), hostId=str(host_id))
    with org_bench.database.reading() as session:
        assert get_server(session, made.id, OrgScope(ORG)) == made
    assert (made.name, made.org_id, made.host_id, made.is_enabled) == ("one", ORG, host_id, True)
    [entry] = org_bench.audit(str(made.id))
    assert (entry.action, entry.entity, entry.after["hostId"]) == ("create", "server", str(host_id))


def test_the_host_of_another_is_no_host(org_bench: Bench) -> None:
    org_bench.organisation()
    theirs = org_bench.host(OTHER_ORG)
    for host_id in (theirs, theirs + 99):
        with pytest.raises(InvalidInputError, match="Invalid server") as refused:
            created(org_bench, hostId=host_id)
        assert refused.value.fields == (("hostId", "is not a host of organisation 'acme'"),)
    with org_bench.database.reading() as session:
        assert list_servers(session, ALL_ORGANISATIONS, limit=10, offset=0) == []


def test_a_name_is_taken_once(org_bench: Bench) -> None:
    org_bench.organisation()
    created(org_bench)
    with pytest.raises(ConflictError, match="has a server 'one' already"):
        created(org_bench)


def test_anothers_organisation_is_not_there(org_bench: Bench) -> None:
    org_bench.organisation(OTHER_ORG)
    with pytest.raises(NotFoundError, match="Organisation globex not found"):
        created(org_bench, OTHER_ORG, OrgScope(ORG))
