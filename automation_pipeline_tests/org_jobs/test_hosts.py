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
from automation_pipeline_tests.org_jobs.data import ACTOR, ORG, OTHER_ORG, OrgJobsData

ORG_SCOPE = OrgScope(ORG)
KINDS = ("host", "server")
CREATE: dict[str, Callable[..., Any]] = {"host": create_host, "server": create_server}
UPDATE: dict[str, Callable[..., Any]] = {"host": update_host, "server": update_server}
DELETE: dict[str, Callable[..., None]] = {"host": delete_host, "server": delete_server}


def ids(data: OrgJobsData, kind: str) -> list[int]:
    table = HostRow if kind == "host" else ServerRow
    return list(data.rows(select(table.id).order_by(table.id)))


def test_a_new_host_is_stored_and_logged(data: OrgJobsData) -> None:
    data.organisation()
    created = create_host({"name": "eu-1"}, org_id=ORG, **data.context(ORG_SCOPE))
    with data.database.reading() as session:
        assert get_host(session, created.id, ORG_SCOPE) == created
    assert (created.name, created.org_id, created.last_seen_at, created.agent_version) == (
        "eu-1",
        ORG,
        None,
        None,
    )
    assert created.created_at == created.updated_at == data.now
    [entry] = data.audit(str(created.id))
    assert (entry.org_id, entry.action, entry.entity, entry.actor) == (ORG, "create", "host", ACTOR)
    assert entry.after == {"name": "eu-1", "maintenanceUntil": None}


def test_a_new_server_is_stored_and_logged_and_moves_no_jobs(data: OrgJobsData) -> None:
    host_id, waiting = data.host(), data.job()
    given = {"name": "one", "hostId": str(host_id)}
    created = create_server(given, org_id=ORG, **data.context(ORG_SCOPE))
    with data.database.reading() as session:
        assert get_server(session, created.id, ORG_SCOPE) == created
    assert (created.name, created.org_id, created.host_id, created.is_enabled) == (
        "one",
        ORG,
        host_id,
        True,
    )
    [entry] = data.audit(str(created.id))
    assert (entry.action, entry.entity, entry.after["hostId"]) == ("create", "server", str(host_id))
    assert data.run_row(waiting).host_id is None


@pytest.mark.parametrize("kind", KINDS)
def test_a_name_is_unique_within_an_organisation(kind: str, data: OrgJobsData) -> None:
    for org_id in (ORG, OTHER_ORG):
        data.organisation(org_id)
        CREATE[kind]({"name": "one"}, org_id=org_id, **data.context())
    taken = f"Organisation 'acme' has a {kind} 'one' already: choose another name"
    with pytest.raises(ConflictError, match=taken):
        CREATE[kind]({"name": "one"}, org_id=ORG, **data.context())
    two = CREATE[kind]({"name": "two"}, org_id=ORG, **data.context())
    with pytest.raises(ConflictError, match=taken):
        UPDATE[kind](two.id, {"name": "one"}, **data.context())
    assert UPDATE[kind](two.id, {"name": "three"}, **data.context()).name == "three"
    assert len(ids(data, kind)) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_caller_cannot_access_another_organisation(kind: str, data: OrgJobsData) -> None:
    theirs = getattr(data, kind)(OTHER_ORG, name="theirs")
    for org_id in (OTHER_ORG, "unknown"):
        with pytest.raises(NotFoundError, match=f"^Organisation {org_id} not found"):
            CREATE[kind]({"name": "one"}, org_id=org_id, **data.context(ORG_SCOPE))
    for key in (theirs, theirs + 99):
        with pytest.raises(NotFoundError, match=f"^{kind.title()} {key} not found"):
            UPDATE[kind](key, {"name": "renamed"}, **data.context(ORG_SCOPE))
        with pytest.raises(NotFoundError, match=f"^{kind.title()} {key} not found"):
            DELETE[kind](key, **data.context(ORG_SCOPE))
    with data.database.reading() as session:
        listed = list_hosts if kind == "host" else list_servers
        [row] = listed(session, ALL_ORGANISATIONS, limit=10, offset=0)
    assert (row.id, row.name) == (theirs, "theirs")


def test_a_server_is_on_a_host_of_its_organisation(data: OrgJobsData) -> None:
    server, theirs = data.server(), data.host(OTHER_ORG)
    for host_id in (theirs, theirs + 99):
        for refused_call in (
            lambda host_id=host_id: create_server(
                {"name": "one", "hostId": host_id}, org_id=ORG, **data.context()
            ),
            lambda host_id=host_id: update_server(server, {"hostId": host_id}, **data.context()),
        ):
            with pytest.raises(InvalidInputError, match="Invalid server") as refused:
                refused_call()
            assert refused.value.fields == (("hostId", "is not a host of organisation 'acme'"),)
    assert (ids(data, "server"), data.server_row(server).host_id) == ([server], None)


def test_a_change_of_a_host_is_logged_once(data: OrgJobsData) -> None:
    host_id = data.host(name="eu-1")
    until = data.now + timedelta(hours=2)
    data.advance_minutes(1)
    patch = {"maintenanceUntil": iso(until)}
    changed = update_host(host_id, patch, **data.context(ORG_SCOPE))
    assert (changed.name, changed.maintenance_until) == ("eu-1", until)
    assert changed.updated_at == data.now
    assert changed.last_seen_at == data.host_row(host_id).last_seen_at
    data.advance_minutes(1)
    assert update_host(host_id, {"name": "eu-1"}, **data.context()) == changed
    [entry] = data.audit(str(host_id))
    assert (entry.before, entry.after) == ({"maintenanceUntil": None}, patch)


def test_waiting_jobs_move_with_their_server(data: OrgJobsData) -> None:
    old, new = data.host(), data.host()
    server = data.server(host_id=old)
    place = {"server_instance_id": server, "host_id": old}
    waiting, running = data.job(**place), data.running_job(**place)
    taken = data.job(**place, run={"lease_until": database_now(600.0)})
    abandoned = data.job(**place, run={"lease_until": database_now(-600.0)})
    elsewhere = data.job(server_instance_id=data.server(host_id=old), host_id=old)
    change = {"hostId": str(new), "isEnabled": False}
    changed = update_server(server, change, **data.context(ORG_SCOPE))
    assert (changed.host_id, changed.is_enabled) == (new, False)
    jobs = (waiting, abandoned, running, taken, elsewhere)
    assert [data.run_row(one).host_id for one in jobs] == [new, new, old, old, old]
    [entry] = data.audit(str(server))
    assert entry.after == change
    assert update_server(server, {"hostId": None}, **data.context()).host_id is None
    assert data.run_row(waiting).host_id is None


def test_an_unused_host_is_deleted_and_its_jobs_stay(data: OrgJobsData) -> None:
    host_id, other = data.host(name="eu-1"), data.host()
    ended = {"status": "cancelled", "finished_at": data.now}
    job_id = data.job(host_id=host_id, run=ended)
    elsewhere = data.job(host_id=other, run=ended)
    delete_host(host_id, **data.context(ORG_SCOPE))
    assert ids(data, "host") == [other]
    assert [data.run_row(one).host_id for one in (job_id, elsewhere)] == [None, other]
    [entry] = data.audit(str(host_id))
    assert (entry.action, entry.before) == ("delete", {"name": "eu-1", "maintenanceUntil": None})


def test_a_host_in_use_is_not_deleted(data: OrgJobsData) -> None:
    with_server, at_work = data.host(), data.host()
    data.server(host_id=with_server)
    data.running_job(host_id=at_work)
    servers = f"Host {with_server} has 1 servers: delete them, or move them"
    with pytest.raises(ConflictError, match=servers):
        delete_host(with_server, **data.context())
    with pytest.raises(ConflictError, match="has work: wait for 1 jobs, or cancel them"):
        delete_host(at_work, **data.context())
    assert ids(data, "host") == [with_server, at_work]


def test_an_unused_server_is_deleted_and_detached_from_deleted_schedules(data: OrgJobsData) -> None:
    server, other = data.server(name="one"), data.server()
    gone = data.schedule(server_instance_id=server, deleted_at=data.now)
    kept = data.schedule(server_instance_id=other, deleted_at=data.now)
    delete_server(server, **data.context(ORG_SCOPE))
    assert ids(data, "server") == [other]
    assert data.schedule_row(gone).server_instance_id is None
    assert data.schedule_row(kept).server_instance_id == other
    [entry] = data.audit(str(server))
    assert (entry.action, entry.before["name"]) == ("delete", "one")


def test_a_server_with_schedules_or_jobs_is_not_deleted(data: OrgJobsData) -> None:
    scheduled, worked = data.server(), data.server()
    data.schedule(server_instance_id=scheduled)
    data.job(server_instance_id=worked, run={"status": "cancelled", "finished_at": data.now})
    schedules = f"Server {scheduled} has 1 schedules: delete them, or move them"
    with pytest.raises(ConflictError, match=schedules):
        delete_server(scheduled, **data.context())
    with pytest.raises(ConflictError, match=r"has 1 jobs.*isEnabled: false"):
        delete_server(worked, **data.context())
    assert ids(data, "server") == [scheduled, worked]
