"""Create, change and delete hosts and servers, each with an entry in the audit log."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select

from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import ConflictError, InvalidInputError, NotFoundError
from automation_pipeline.org_jobs.models.organisations import ALL_ORGANISATIONS, OrgScope
from automation_pipeline.org_jobs.organisations import (
    create_host,
    create_server,
    delete_host,
    delete_server,
    update_host,
    update_server,
)
from automation_pipeline.org_jobs.queries.organisations import (
    get_host,
    get_server,
    list_hosts,
    list_servers,
)
from automation_pipeline.org_jobs.tables import HostRow, ServerRow
from automation_pipeline.storage.statements import database_now
from automation_pipeline_tests.org_jobs.bench import ACTOR, ORG, OTHER_ORG, Bench

MINE = OrgScope(ORG)
KINDS = ("host", "server")
CREATE: dict[str, Callable[..., Any]] = {"host": create_host, "server": create_server}
UPDATE: dict[str, Callable[..., Any]] = {"host": update_host, "server": update_server}
DELETE: dict[str, Callable[..., None]] = {"host": delete_host, "server": delete_server}


def by(bench: Bench, within: OrgScope = ALL_ORGANISATIONS) -> dict[str, Any]:
    return {"within": within, "database": bench.database, "clock": bench.clock, "actor": ACTOR}


def ids(bench: Bench, kind: str) -> list[int]:
    table = HostRow if kind == "host" else ServerRow
    return list(bench.rows(select(table.id).order_by(table.id)))


def test_a_new_host_is_stored_and_logged(org_bench: Bench) -> None:
    org_bench.organisation()
    made = create_host({"name": "eu-1"}, org_id=ORG, **by(org_bench, MINE))
    with org_bench.database.reading() as session:
        assert get_host(session, made.id, MINE) == made
    assert (made.name, made.org_id, made.last_seen_at, made.agent_version) == (
        "eu-1",
        ORG,
        None,
        None,
    )
    assert made.created_at == made.updated_at == org_bench.now
    [entry] = org_bench.audit(str(made.id))
    assert (entry.org_id, entry.action, entry.entity, entry.actor) == (ORG, "create", "host", ACTOR)
    assert entry.after == {"name": "eu-1", "maintenanceUntil": None}


def test_a_new_server_is_stored_and_logged_and_moves_no_jobs(org_bench: Bench) -> None:
    host_id, waiting = org_bench.host(), org_bench.job()
    given = {"name": "one", "hostId": str(host_id)}
    made = create_server(given, org_id=ORG, **by(org_bench, MINE))
    with org_bench.database.reading() as session:
        assert get_server(session, made.id, MINE) == made
    assert (made.name, made.org_id, made.host_id, made.is_enabled) == ("one", ORG, host_id, True)
    [entry] = org_bench.audit(str(made.id))
    assert (entry.action, entry.entity, entry.after["hostId"]) == ("create", "server", str(host_id))
    assert org_bench.run_row(waiting).host_id is None


@pytest.mark.parametrize("kind", KINDS)
def test_a_name_is_unique_within_an_organisation(kind: str, org_bench: Bench) -> None:
    for org_id in (ORG, OTHER_ORG):
        org_bench.organisation(org_id)
        CREATE[kind]({"name": "one"}, org_id=org_id, **by(org_bench))
    taken = f"Organisation 'acme' has a {kind} 'one' already: choose another name"
    with pytest.raises(ConflictError, match=taken):
        CREATE[kind]({"name": "one"}, org_id=ORG, **by(org_bench))
    two = CREATE[kind]({"name": "two"}, org_id=ORG, **by(org_bench))
    with pytest.raises(ConflictError, match=taken):
        UPDATE[kind](two.id, {"name": "one"}, **by(org_bench))
    assert UPDATE[kind](two.id, {"name": "three"}, **by(org_bench)).name == "three"
    assert len(ids(org_bench, kind)) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_caller_cannot_access_another_organisation(kind: str, org_bench: Bench) -> None:
    theirs = getattr(org_bench, kind)(OTHER_ORG, name="theirs")
    for org_id in (OTHER_ORG, "unknown"):
        with pytest.raises(NotFoundError, match=f"^Organisation {org_id} not found"):
            CREATE[kind]({"name": "one"}, org_id=org_id, **by(org_bench, MINE))
    for key in (theirs, theirs + 99):
        with pytest.raises(NotFoundError, match=f"^{kind.title()} {key} not found"):
            UPDATE[kind](key, {"name": "renamed"}, **by(org_bench, MINE))
        with pytest.raises(NotFoundError, match=f"^{kind.title()} {key} not found"):
            DELETE[kind](key, **by(org_bench, MINE))
    with org_bench.database.reading() as session:
        listed = list_hosts if kind == "host" else list_servers
        [row] = listed(session, ALL_ORGANISATIONS, limit=10, offset=0)
    assert (row.id, row.name) == (theirs, "theirs")


def test_a_server_is_on_a_host_of_its_organisation(org_bench: Bench) -> None:
    server, theirs = org_bench.server(), org_bench.host(OTHER_ORG)
    for host_id in (theirs, theirs + 99):
        for refused_call in (
            lambda host_id=host_id: create_server(
                {"name": "one", "hostId": host_id}, org_id=ORG, **by(org_bench)
            ),
            lambda host_id=host_id: update_server(server, {"hostId": host_id}, **by(org_bench)),
        ):
            with pytest.raises(InvalidInputError, match="Invalid server") as refused:
                refused_call()
            assert refused.value.fields == (("hostId", "is not a host of organisation 'acme'"),)
    assert (ids(org_bench, "server"), org_bench.server_row(server).host_id) == ([server], None)


def test_a_change_of_a_host_is_logged_once(org_bench: Bench) -> None:
    host_id = org_bench.host(name="eu-1")
    until = org_bench.now + timedelta(hours=2)
    org_bench.pass_minutes(1)
    patch = {"maintenanceUntil": iso(until)}
    changed = update_host(host_id, patch, **by(org_bench, MINE))
    assert (changed.name, changed.maintenance_until) == ("eu-1", until)
    assert changed.updated_at == org_bench.now
    assert changed.last_seen_at == org_bench.host_row(host_id).last_seen_at
    org_bench.pass_minutes(1)
    assert update_host(host_id, {"name": "eu-1"}, **by(org_bench)) == changed
    [entry] = org_bench.audit(str(host_id))
    assert (entry.before, entry.after) == ({"maintenanceUntil": None}, patch)


def test_waiting_jobs_move_with_their_server(org_bench: Bench) -> None:
    old, new = org_bench.host(), org_bench.host()
    server = org_bench.server(host_id=old)
    place = {"server_instance_id": server, "host_id": old}
    waiting, running = org_bench.job(**place), org_bench.running_job(**place)
    taken = org_bench.job(**place, run={"lease_until": database_now(600.0)})
    abandoned = org_bench.job(**place, run={"lease_until": database_now(-600.0)})
    elsewhere = org_bench.job(server_instance_id=org_bench.server(host_id=old), host_id=old)
    change = {"hostId": str(new), "isEnabled": False}
    changed = update_server(server, change, **by(org_bench, MINE))
    assert (changed.host_id, changed.is_enabled) == (new, False)
    jobs = (waiting, abandoned, running, taken, elsewhere)
    assert [org_bench.run_row(one).host_id for one in jobs] == [new, new, old, old, old]
    [entry] = org_bench.audit(str(server))
    assert entry.after == change
    assert update_server(server, {"hostId": None}, **by(org_bench)).host_id is None
    assert org_bench.run_row(waiting).host_id is None


def test_an_unused_host_is_deleted_and_its_jobs_stay(org_bench: Bench) -> None:
    host_id, other = org_bench.host(name="eu-1"), org_bench.host()
    ended = {"status": "cancelled", "finished_at": org_bench.now}
    job_id = org_bench.job(host_id=host_id, run=ended)
    elsewhere = org_bench.job(host_id=other, run=ended)
    delete_host(host_id, **by(org_bench, MINE))
    assert ids(org_bench, "host") == [other]
    assert [org_bench.run_row(one).host_id for one in (job_id, elsewhere)] == [None, other]
    [entry] = org_bench.audit(str(host_id))
    assert (entry.action, entry.before) == ("delete", {"name": "eu-1", "maintenanceUntil": None})


def test_a_host_in_use_is_not_deleted(org_bench: Bench) -> None:
    with_server, at_work = org_bench.host(), org_bench.host()
    org_bench.server(host_id=with_server)
    org_bench.running_job(host_id=at_work)
    servers = f"Host {with_server} has 1 servers: delete them, or move them"
    with pytest.raises(ConflictError, match=servers):
        delete_host(with_server, **by(org_bench))
    with pytest.raises(ConflictError, match="has work: wait for 1 jobs, or cancel them"):
        delete_host(at_work, **by(org_bench))
    assert ids(org_bench, "host") == [with_server, at_work]


def test_an_unused_server_is_deleted_and_detached_from_deleted_schedules(org_bench: Bench) -> None:
    server, other = org_bench.server(name="one"), org_bench.server()
    gone = org_bench.schedule(server_instance_id=server, deleted_at=org_bench.now)
    kept = org_bench.schedule(server_instance_id=other, deleted_at=org_bench.now)
    delete_server(server, **by(org_bench, MINE))
    assert ids(org_bench, "server") == [other]
    assert org_bench.schedule_row(gone).server_instance_id is None
    assert org_bench.schedule_row(kept).server_instance_id == other
    [entry] = org_bench.audit(str(server))
    assert (entry.action, entry.before["name"]) == ("delete", "one")


def test_a_server_with_schedules_or_jobs_is_not_deleted(org_bench: Bench) -> None:
    scheduled, worked = org_bench.server(), org_bench.server()
    org_bench.schedule(server_instance_id=scheduled)
    org_bench.job(
        server_instance_id=worked, run={"status": "cancelled", "finished_at": org_bench.now}
    )
    schedules = f"Server {scheduled} has 1 schedules: delete them, or move them"
    with pytest.raises(ConflictError, match=schedules):
        delete_server(scheduled, **by(org_bench))
    with pytest.raises(ConflictError, match=r"has 1 jobs.*isEnabled: false"):
        delete_server(worked, **by(org_bench))
    assert ids(org_bench, "server") == [scheduled, worked]
