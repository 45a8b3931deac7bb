"""Queries of organisations, hosts and servers by scope."""

import pytest

from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.org_jobs.models.organisations import (
    ALL_ORGANISATIONS,
    AuditEntry,
    OrgScope,
)
from automation_pipeline.org_jobs.queries.organisations import (
    add_audit_entry,
    audit_log,
    get_host,
    get_organisation,
    get_server,
    has_organisation,
    list_hosts,
    list_organisations,
    list_servers,
)
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.org_jobs.data import ACTOR, ORG, OTHER_ORG, OrgJobsData

PAGE = {"limit": 10, "offset": 0}


def test_lists_show_one_organisation(data: OrgJobsData) -> None:
    ids = [
        data.host(ORG, "a"),
        data.host(OTHER_ORG, "b"),
        data.server(ORG),
        data.server(OTHER_ORG),
    ]
    own = OrgScope(ORG)
    with data.database.reading() as session:
        assert [one.id for one in list_organisations(session, own, **PAGE)] == [ORG]
        assert [one.id for one in list_organisations(session, ALL_ORGANISATIONS, **PAGE)] == [
            ORG,
            OTHER_ORG,
        ]
        assert [one.id for one in list_hosts(session, own, **PAGE)] == ids[:1]
        assert [one.id for one in list_hosts(session, ALL_ORGANISATIONS, **PAGE)] == ids[:2]
        assert [one.id for one in list_servers(session, own, **PAGE)] == ids[2:3]
        assert [one.id for one in list_servers(session, ALL_ORGANISATIONS, **PAGE)] == ids[2:]
        assert list_hosts(session, own, org_id=OTHER_ORG, **PAGE) == []
        assert list_servers(session, own, org_id=OTHER_ORG, **PAGE) == []


def test_lists_are_filtered_and_paged(data: OrgJobsData) -> None:
    hosts = [data.host(name=name) for name in ("Eu-1", "eu-2", "us_1")]
    server = data.server(name="x", host_id=hosts[1])
    data.server(name="y")
    with data.database.reading() as session:
        assert [one.id for one in list_hosts(session, ALL_ORGANISATIONS, q="EU", **PAGE)] == hosts[
            :2
        ]
        assert list_hosts(session, ALL_ORGANISATIONS, q="%", **PAGE) == []
        assert [
            one.id for one in list_hosts(session, ALL_ORGANISATIONS, limit=1, offset=1)
        ] == hosts[1:2]
        assert [
            one.id for one in list_servers(session, ALL_ORGANISATIONS, host_id=hosts[1], **PAGE)
        ] == [server]
        assert [
            one.id for one in list_organisations(session, ALL_ORGANISATIONS, q="cm", **PAGE)
        ] == [ORG]


@every_case("org_id", [OTHER_ORG, "unknown", "", "A\0", "\ud800"])
def test_other_organisation_is_not_found(org_id: str, data: OrgJobsData) -> None:
    data.organisation(ORG)
    data.organisation(OTHER_ORG)
    with data.database.transaction() as session, pytest.raises(NotFoundError):
        get_organisation(session, org_id, OrgScope(ORG))
    with data.database.transaction() as session:
        assert get_organisation(session, ORG, OrgScope(ORG)).id == ORG


@every_case(
    ("find", "kind"),
    [(get_host, "host"), (get_server, "server")],
)
def test_hosts_and_servers_of_another_organisation_are_not_found(
    find: object, kind: str, data: OrgJobsData
) -> None:
    own, theirs = (getattr(data, kind)(org_id) for org_id in (ORG, OTHER_ORG))
    for missing in (theirs, theirs + 99):
        with (
            data.database.transaction() as session,
            pytest.raises(NotFoundError, match=f"^{kind.title()} {missing} not found"),
        ):
            find(session, missing, OrgScope(ORG))
    with data.database.transaction() as session:
        assert find(session, own, OrgScope(ORG)).id == own


@every_case(
    ("org_id", "is_there"), [(ORG, True), ("unknown", False), ("a\0", False), ("\ud800", False)]
)
def test_operator_lists_all_organisations(org_id: str, is_there: bool, data: OrgJobsData) -> None:
    data.organisation(ORG)
    with data.database.reading() as session:
        assert has_organisation(session, org_id) is is_there


def log(data: OrgJobsData, org_id: str, entity: str, entity_id: str) -> None:
    data.organisation(org_id)
    about = {"org_id": org_id, "entity": entity, "entity_id": entity_id}
    with data.database.transaction() as session:
        add_audit_entry(
            session,
            **about,
            actor=ACTOR,
            action="pause",
            after={"state": "PAUSED"},
            reason="Why",
            now=data.now,
        )


def read(data: OrgJobsData, within: OrgScope, **chosen: object) -> list[AuditEntry]:
    with data.database.reading() as session:
        return audit_log(session, within, **({"limit": 10} | chosen))


def test_the_audit_log_of_an_organisation_is_read_in_either_order(data: OrgJobsData) -> None:
    for org_id, entity_id in ((ORG, "a"), (OTHER_ORG, "a"), (ORG, "b")):
        log(data, org_id, "schedule", entity_id)
    log(data, ORG, "host", "a")
    mine = read(data, OrgScope(ORG))
    assert [(one.entity, one.entity_id) for one in mine] == [
        ("schedule", "a"),
        ("schedule", "b"),
        ("host", "a"),
    ]
    assert (mine[0].action, mine[0].before, mine[0].after, mine[0].reason) == (
        "pause",
        None,
        {"state": "PAUSED"},
        "Why",
    )
    assert len(read(data, ALL_ORGANISATIONS)) == 4
    assert read(data, OrgScope(ORG), entity="schedule", entity_id="b") == [mine[1]]
    assert read(data, OrgScope(ORG), after_id=mine[0].id) == mine[1:]
    assert read(data, OrgScope(ORG), newest_first=True, limit=2) == [mine[2], mine[1]]
    assert read(data, OrgScope(ORG), newest_first=True, after_id=mine[1].id) == [mine[0]]
