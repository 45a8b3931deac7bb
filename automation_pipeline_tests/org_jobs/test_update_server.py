"""A change of a server: what waits moves with it, and it moves to hosts of its organisation
only."""

import pytest

from automation_pipeline.core.errors import ConflictError, InvalidInputError, NotFoundError
from automation_pipeline.org_jobs.models.organisations import ALL_ORGANISATIONS, OrgScope, Server
from automation_pipeline.org_jobs.organisations import update_server
from automation_pipeline.storage.clock import database_now
from automation_pipeline_tests.org_jobs.bench import ACTOR, ORG, OTHER_ORG, Bench


def updated(
    bench: Bench, server_id: int, patch: dict[str, object], within: OrgScope = ALL_ORGANISATIONS
) -> Server:
    return update_server(
        server_id, patch, within=within, database=bench.database, clock=bench.clock, actor=ACTOR
    )


def test_what_waits_moves_with_it_and_what_is_taken_stays(org_bench: Bench) -> None:
    old, new = org_bench.host(), org_bench.host()
    server = org_bench.server(host_id=old)
    place = {"server_instance_id": server, "host_id": old}
    waiting, running = org_bench.job(**place), org_bench.running_job(**place)
    taken = org_bench.job(**place, run={"lease_until": database_now(600.0)})
    abandoned = org_bench.job(**place, run={"lease_until": database_now(-600.0)})
    elsewhere = org_bench.job(server_instance_id=org_bench.server(host_id=old), host_id=old)
    changed = updated(org_bench, server, {"hostId": str(new), "isEnabled": False}, OrgScope(ORG))
    assert (changed.host_id, changed.is_enabled) == (new, False)
    hosts = [
        org_bench.run_row(one).host_id for one in (waiting, abandoned, running, taken, elsewhere)
    ]
    assert hosts == [new, new, old, old, old]
    [entry] = org_bench.audit(str(server))
    assert entry.after == {"hostId": str(new), "isEnabled": False}
    assert updated(org_bench, server, {"hostId": None}).host_id is None
    assert org_bench.run_row(waiting).host_id is None


def test_it_does_not_move_to_the_host_of_another(org_bench: Bench) -> None:
    server, theirs = org_bench.server(), org_bench.host(OTHER_ORG)
    with pytest.raises(InvalidInputError) as refused:
        updated(org_bench, server, {"hostId": theirs})
    assert refused.value.fields == (("hostId", "is not a host of organisation 'acme'"),)
    assert org_bench.server_row(server).host_id is None


def test_the_name_of_another_is_taken(org_bench: Bench) -> None:
    one, _ = org_bench.server(name="one"), org_bench.server(name="two")
    with pytest.raises(ConflictError, match="has a server 'two' already"):
        updated(org_bench, one, {"name": "two"})


def test_anothers_is_not_there(org_bench: Bench) -> None:
    theirs = org_bench.server(OTHER_ORG, name="theirs")
    for server_id in (theirs, theirs + 99):
        with pytest.raises(NotFoundError, match=f"^Server {server_id} not found"):
            updated(org_bench, server_id, {"name": "ours"}, OrgScope(ORG))
    assert org_bench.server_row(theirs).name == "theirs"
