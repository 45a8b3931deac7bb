"""Access of callers by scope and organisation."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from automation_pipeline import migrations
from automation_pipeline.api.app import create_app
from automation_pipeline.api.permissions import ORG_RULES, RULES, Entity, Rule, ScopeCheck
from automation_pipeline.api.scopes import check_job_type_permission, narrowed
from automation_pipeline.core.access import Caller, Grant, Permission, Scope, whole_grants
from automation_pipeline.fiches.tables import FicheCacheRow
from automation_pipeline.org_jobs.models.job_types import JOB_TYPES
from automation_pipeline.org_jobs.models.organisations import ALL_ORGANISATIONS, OrgScope
from automation_pipeline.org_jobs.tables import (
    AuditLogRow,
    BatchRow,
    FireRow,
    HostRow,
    JobRunRow,
    OrgAlertRow,
    OrganisationRow,
    OrgJobRow,
    OrgJobTypeRow,
    OrgScheduleRow,
    ServerRow,
)
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.api.conftest import Login, Member, client_of, services_on, user_token
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.org_jobs.data import OrgJobsData

SCHEDULES = "/api/automation/schedules"
READ_AND_WRITE = {"automation.read": "GROUP", "automation.write": "GROUP"}
ALL_FICHES: dict[str, Any] = {
    "name": "Of all",
    "scheduleType": "MANUAL",
    "ficheSelection": {"mode": "date_range", "dateRange": "yesterday"},
}
NUMBERED = [
    pytest.param(method, path, rule, id=f"{method} {path}")
    for (method, path), rule in RULES.items()
    if rule.entity in {Entity.AUDIT, Entity.RUN, Entity.SCHEDULE}
]


def of_groupes(*groupes: str) -> dict[str, Any]:
    selection = {"mode": "date_range", "dateRange": "yesterday", "groupes": list(groupes)}
    return {"name": "Of some", "scheduleType": "MANUAL", "ficheSelection": selection}


def stored(client: TestClient, schedule: dict[str, Any]) -> str:
    return client.post(SCHEDULES, json=schedule).json()["data"]["id"]


def triggered(client: TestClient, schedule_id: str, **more: Any) -> Any:
    return client.post("/api/automation/trigger", json={"scheduleId": schedule_id, **more})


@every_case(("method", "path", "rule"), NUMBERED)
def test_an_id_with_another_spelling_is_400(
    client: TestClient, login: Login, method: str, path: str, rule: Any
) -> None:
    """An id that the scope check and the endpoint parse differently would bypass the check."""
    stored(client, ALL_FICHES)
    triggered(client, "1")
    limited = login({f"{rule.permission}.{rule.action}": "GROUP"}, groupes=["NORD"])
    for spelling in ("+1", "%201", "1.0", "0_1", "1%0a", "01", "0" * 20 + "1", "1e0", "９"):
        url = re.sub(r"\{\w+\}", "1", path.replace(f"{{{rule.entity}}}", spelling))
        answered = limited.request(method, url)
        assert answered.status_code == 400, (url, answered.text)
    for id_, status in ((2**63 - 1, 404), (2**63, 400)):
        url = re.sub(r"\{\w+\}", "1", path.replace(f"{{{rule.entity}}}", str(id_)))
        assert limited.request(method, url).status_code == status, url


def test_another_spelling_of_a_fiche_id_does_not_bypass_the_scope(
    client: TestClient, login: Login, database: Database, clock: FakeClock
) -> None:
    row = FicheCacheRow(
        fiche_id="77", groupe="SUD", raw_data={}, fetched_at=clock.now(), expires_at=clock.now()
    )
    with database.transaction() as session:
        session.add(row)
    nord = login({"transcriptions.write": "GROUP", "fiches.read": "GROUP"}, groupes=["NORD"])
    for spelling in ("77", "0" * 24 + "77", "+77", "%2077"):
        assert nord.post(f"/api/transcriptions/{spelling}").status_code == 404
        assert nord.get(f"/api/fiches/{spelling}").status_code == 404


@pytest.mark.parametrize("scope", ["SELF", "GROUP"])
def test_a_misspelled_fiche_selection_is_refused(login: Login, scope: str) -> None:
    limited = login({"automation.write": scope}, groupes=["NORD"])
    schedule = {**ALL_FICHES, "fiche_selection": ALL_FICHES["ficheSelection"]}
    del schedule["ficheSelection"]
    answered = limited.post(SCHEDULES, json=schedule)
    assert answered.status_code == 400
    assert {"fiche_selection", "ficheSelection"} == {
        fault["field"] for fault in answered.json()["details"]
    }


def test_the_creator_of_a_schedule_cannot_be_forged(login: Login) -> None:
    nord = login(READ_AND_WRITE, groupes=["NORD"])
    created = nord.post(SCHEDULES, json={**of_groupes("NORD"), "createdBy": "user:1"}).json()[
        "data"
    ]
    assert created["createdBy"] == "user:12"
    changed = nord.patch(f"{SCHEDULES}/{created['id']}", json={"createdBy": "user:1"}).json()[
        "data"
    ]
    assert changed["createdBy"] == "user:12"


class TestAccessToRuns:
    def test_run_access_depends_on_its_own_selection_not_the_current_schedule(
        self, client: TestClient, login: Login
    ) -> None:
        schedule_id = stored(client, ALL_FICHES)
        run_id = triggered(client, schedule_id).json()["run_id"]
        client.patch(
            f"{SCHEDULES}/{schedule_id}",
            json={"ficheSelection": of_groupes("NORD")["ficheSelection"]},
        )
        nord = login(READ_AND_WRITE, groupes=["NORD"])
        # The pending run will use the selection of NORD.
        assert nord.get(f"{SCHEDULES}/{schedule_id}").json()["data"]["runs"] != []
        client.post(f"/api/automation/runs/{run_id}/cancel")
        other = triggered(
            client, schedule_id, overrideFicheSelection=of_groupes("SUD")["ficheSelection"]
        )
        hidden = other.json()["run_id"]
        for path in ("", "/logs", "/fiches", "/events", "/report"):
            assert nord.get(f"/api/automation/runs/{hidden}{path}").status_code == 404
        assert nord.post(f"/api/automation/runs/{hidden}/retry").status_code == 404
        shown = {run["id"] for run in nord.get("/api/automation/runs").json()["data"]}
        assert hidden not in shown
        assert shown == {
            run["id"] for run in nord.get(f"{SCHEDULES}/{schedule_id}/runs").json()["data"]
        }
        assert shown == {
            run["id"] for run in nord.get(f"{SCHEDULES}/{schedule_id}").json()["data"]["runs"]
        }

    def test_selected_fiche_ids_are_shown_only_with_the_scope_all(
        self, client: TestClient, login: Login
    ) -> None:
        schedule_id = stored(client, of_groupes("NORD"))
        named = {"mode": "manual", "ficheIds": ["77"], "groupes": ["NORD"]}
        run_id = triggered(client, schedule_id, overrideFicheSelection=named).json()["run_id"]
        client.post(f"/api/automation/runs/{run_id}/cancel")
        nord = login(READ_AND_WRITE, groupes=["NORD"])
        assert "77" in str(
            client.get(f"/api/automation/runs/{run_id}").json()["data"]["configSnapshot"]
        )
        shown = nord.get(f"/api/automation/runs/{run_id}").json()["data"]
        assert "77" not in str(shown["configSnapshot"])
        assert {str(line["metadata"]) for line in shown["logs"]} <= {"{}"}

    def test_paging_counts_only_visible_items(self, client: TestClient, login: Login) -> None:
        for groupe in ("NORD", "SUD", "NORD", "SUD", "NORD"):
            triggered(client, stored(client, of_groupes(groupe)))
        nord = login(READ_AND_WRITE, groupes=["NORD"])
        pages = [
            nord.get("/api/automation/runs", params={"limit": 2, "offset": at}).json()["data"]
            for at in (0, 2, 4)
        ]
        assert [[run["id"] for run in page] for page in pages] == [["5", "3"], ["1"], []]


def test_a_trailing_slash_does_not_redirect(client: TestClient) -> None:
    answered = client.get("/health/", headers={"Host": "evil.example"}, follow_redirects=False)
    assert (answered.status_code, answered.json()["code"]) == (404, "NOT_FOUND")


AGENTS = "/api/agents/"
# These routes neither return nor store data of an organisation.
# Their tests are in routes/test_org_job_types.py.
WITHOUT_ORGANISATION_DATA = {("GET", "/api/org-jobs/types"), ("POST", "/api/org-schedules/preview")}
ALL_CASES = [
    pytest.param(method, path, rule, id=f"{method} {path}")
    for (method, path), rule in ORG_RULES.items()
]
ORGANISATION_CASES = [
    case
    for case in ALL_CASES
    if not case.values[1].startswith(AGENTS)
    and (case.values[0], case.values[1]) not in WITHOUT_ORGANISATION_DATA
]
ENTITY_CASES = [
    case
    for case in ORGANISATION_CASES
    if "{" in case.values[1] and case.values[2].permission is Permission.ORG_JOBS
]
LIST_CASES = [
    case for case in ORGANISATION_CASES if "{" not in case.values[1] and case.values[0] == "GET"
]
CREATE_CASES = [
    case for case in ORGANISATION_CASES if "{" not in case.values[1] and case.values[0] == "POST"
]
MANAGEMENT_CASES = [
    case for case in ORGANISATION_CASES if case.values[2].permission is Permission.ORGANISATIONS
]
TABLES = (
    OrganisationRow,
    HostRow,
    ServerRow,
    OrgScheduleRow,
    FireRow,
    BatchRow,
    OrgJobTypeRow,
    OrgJobRow,
    JobRunRow,
    OrgAlertRow,
    AuditLogRow,
)
BODIES: Mapping[str, Mapping[str, Any]] = {
    "/api/org-hosts": {"name": "new"},
    "/api/org-servers": {"name": "new"},
    "/api/org-schedules": {
        "name": "new",
        "cronExpression": "0 2 * * *",
        "jobType": "HTTPS_CALL",
        "payload": {"url": "https://example.com/"},
    },
    "/api/org-jobs/types": {"name": "NEW", "summary": "New."},
    "/api/org-jobs/types/{type_name}": {"summary": "Changed."},
    "/api/org-jobs": {"type": "HTTPS_CALL", "payload": {"url": "https://example.com/"}},
    "/api/org-schedules/{org_schedule_id}/backfill": {
        "from": "2026-05-01T00:00:00Z",
        "until": "2026-05-03T00:00:00Z",
    },
}


@dataclass(frozen=True)
class EntityIds:
    """Ids of one entity of each kind of an organisation, by path parameter."""

    ids: Mapping[str, str]

    def named(self, path: str) -> str:
        return re.sub(r"\{(\w+)\}", lambda found: self.ids[found[1]], path)


MISSING = EntityIds(
    {
        "org_id": "initech",
        "host_id": "987654",
        "server_id": "987654",
        "org_schedule_id": str(uuid4()),
        "org_job_id": "987654",
        "batch_id": "987654",
        "type_name": "NOWHERE",
    }
)


def create_entities(orgs: OrgJobsData, org_id: str) -> EntityIds:
    orgs.organisation(org_id)
    host_id = orgs.host(org_id)
    server_id = orgs.server(org_id, host_id=host_id)
    schedule_id = orgs.schedule(org_id, server_instance_id=server_id)
    batch = BatchRow(
        org_id=org_id,
        schedule_id=schedule_id,
        type="backfill",
        status="running",
        behaviour="none",
        from_at=orgs.now,
        until_at=orgs.now,
        total=1,
        created_by="user:1",
        created_at=orgs.now,
    )
    alert = {"severity": "warning", "subject": schedule_id, "message": "Late", "status": "unsent"}
    entry = {"actor": "user:1", "action": "update", "entity": "schedule", "entity_id": schedule_id}
    with orgs.database.transaction() as session:
        session.add(batch)
        session.add(
            OrgAlertRow(
                org_id=org_id,
                name="silent_schedule",
                raised_at=orgs.now,
                next_retry_at=orgs.now,
                **alert,
            )
        )
        session.add(AuditLogRow(org_id=org_id, at=orgs.now, **entry))
        session.flush()
        batch_id = batch.id
    type_name = f"OF_{uuid4().hex.upper()}"
    with orgs.database.transaction() as session:
        session.add(
            OrgJobTypeRow(
                org_id=org_id,
                name=type_name,
                summary="Its own.",
                is_mutation=True,
                limit_seconds=60,
                created_at=orgs.now,
                updated_at=orgs.now,
            )
        )
    fire_id = orgs.fire(schedule_id)
    job_id = orgs.job(
        org_id,
        schedule_id=schedule_id,
        fire_id=fire_id,
        batch_id=batch_id,
        server_instance_id=server_id,
    )
    return EntityIds(
        {
            "org_id": org_id,
            "host_id": str(host_id),
            "server_id": str(server_id),
            "org_schedule_id": schedule_id,
            "org_job_id": str(job_id),
            "batch_id": str(batch_id),
            "type_name": type_name,
        }
    )


def everything(orgs: OrgJobsData) -> list[dict[str, Any]]:
    with orgs.database.reading() as session:
        return [
            {column.key: getattr(row, column.key) for column in table.__table__.columns}
            for table in TABLES
            for row in session.query(table).order_by("id")
        ]


def request(client: TestClient, method: str, path: str, entities: EntityIds, **params: str) -> Any:
    body = None if method == "GET" else BODIES.get(path, {})
    return client.request(method, entities.named(path), json=body, params=params)


def test_every_organisation_route_is_scoped_and_tested() -> None:
    assert {rule.scoped for rule in ORG_RULES.values()} == {ScopeCheck.BY_ORGANISATION}
    tested = {
        (case.values[0], case.values[1])
        for case in (*ENTITY_CASES, *LIST_CASES, *CREATE_CASES, *MANAGEMENT_CASES)
    }
    agents = {route for route in ORG_RULES if route[1].startswith(AGENTS)}
    assert tested | WITHOUT_ORGANISATION_DATA | agents == set(ORG_RULES)


@every_case(("method", "path", "rule"), ENTITY_CASES)
def test_entities_of_another_organisation_look_missing(
    member: Member, orgs: OrgJobsData, method: str, path: str, rule: Rule
) -> None:
    acme, globex = create_entities(orgs, "acme"), member("globex")
    before = everything(orgs)
    hidden, missing = (request(globex, method, path, entities) for entities in (acme, MISSING))
    assert (hidden.status_code, hidden.json()["code"]) == (404, "NOT_FOUND")
    assert missing.status_code == 404
    message = hidden.json()["error"]
    for name, entity_id in acme.ids.items():
        message = (
            message.replace(entity_id, MISSING.ids[name]) if f"{{{name}}}" in path else message
        )
    assert message == missing.json()["error"]
    assert everything(orgs) == before


@every_case(("method", "path", "rule"), ENTITY_CASES)
def test_entities_of_the_own_organisation_are_accessible(
    member: Member, orgs: OrgJobsData, method: str, path: str, rule: Rule
) -> None:
    """Proves that the previous test uses existing entities."""
    acme = create_entities(orgs, "acme")
    assert request(member("acme"), method, path, acme).status_code in {200, 201, 202, 204, 409}


@every_case(("method", "path", "rule"), LIST_CASES)
def test_lists_exclude_other_organisations(
    operator: TestClient, member: Member, orgs: OrgJobsData, method: str, path: str, rule: Rule
) -> None:
    clients = {org_id: member(org_id, "org-jobs.read") for org_id in ("acme", "globex")}
    for org_id in clients:
        create_entities(orgs, org_id)
    whose = "id" if path == "/api/organisations" else "orgId"
    for org_id, client in clients.items():
        assert {one[whose] for one in client.get(path).json()["data"]} == {org_id}
    if path != "/api/organisations":
        assert clients["globex"].get(path, params={"org": "acme"}).json()["data"] == []
        assert {
            one[whose] for one in operator.get(path, params={"org": "acme"}).json()["data"]
        } == {"acme"}
    assert {one[whose] for one in operator.get(path).json()["data"]} == {"acme", "globex"}


@pytest.mark.parametrize(
    ("method", "path", "rule"),
    [case for case in CREATE_CASES if case.values[1] != "/api/organisations"],
)
def test_entities_cannot_be_created_for_another_organisation(
    operator: TestClient, member: Member, orgs: OrgJobsData, method: str, path: str, rule: Rule
) -> None:
    globex = member("globex")
    before = everything(orgs)
    other, missing = (
        request(globex, method, path, MISSING, org=org_id) for org_id in ("acme", "initech")
    )
    assert (other.status_code, missing.status_code) == (404, 404)
    assert other.json()["error"].replace("acme", "initech") == missing.json()["error"]
    unnamed = request(operator, method, path, MISSING)
    assert (unnamed.status_code, unnamed.json()["details"][0]["field"]) == (400, "org")
    assert request(operator, method, path, MISSING, org="initech").status_code == 404
    assert everything(orgs) == before
    assert request(globex, method, path, MISSING).json()["data"]["orgId"] == "globex"


@every_case(("method", "path", "rule"), MANAGEMENT_CASES)
def test_an_organisation_token_manages_no_organisation(
    member: Member, orgs: OrgJobsData, method: str, path: str, rule: Rule
) -> None:
    acme = create_entities(orgs, "acme")
    answered = request(member("globex"), method, path, acme)
    if rule.own is None:
        assert answered.status_code == 403
    else:
        assert answered.status_code == (404 if "{" in path else 200)


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> FastAPI:
    services = services_on(f"sqlite:///{tmp_path_factory.mktemp('scopes') / 'automation.db'}")
    migrations.upgrade(services.database)
    return create_app(services)


@every_case("scope", ["SELF", "GROUP"])
@every_case(("method", "path", "rule"), ALL_CASES)
def test_callers_without_an_organisation_need_the_scope_all(
    empty: FastAPI, method: str, path: str, rule: Rule, scope: str
) -> None:
    narrow = client_of(
        empty, user_token({f"{rule.permission}.{rule.action}": scope}, groupes=["NORD"])
    )
    answered = narrow.request(method, re.sub(r"\{\w+\}", "1", path))
    assert (answered.status_code, answered.json()["code"]) == (403, "AUTHORIZATION_ERROR")


@every_case("permission", ["org-jobs.read", "org-jobs.agents.read"])
@every_case(
    ("method", "path", "rule"), [case for case in ALL_CASES if case.values[2].action == "write"]
)
def test_an_organisation_token_needs_the_permission(
    member: Member, method: str, path: str, rule: Rule, permission: str
) -> None:
    answered = member("acme", permission).request(method, re.sub(r"\{\w+\}", "1", path))
    assert (answered.status_code, answered.json()["code"]) == (403, "AUTHORIZATION_ERROR")


def caller(*, permission: Permission | None = None, scope: Scope = Scope.ALL) -> Caller:
    return Caller("user:1", {} if permission is None else {permission: Grant(scope, scope)})


PERMITTED_TYPES = {
    name: one.permission for name, one in JOB_TYPES.items() if one.permission is not None
}


@every_case(("name", "permission"), PERMITTED_TYPES.items())
def test_a_restricted_type_needs_its_permission_with_the_scope_all(
    name: str, permission: Permission
) -> None:
    check_job_type_permission(caller(permission=permission), name)
    check_job_type_permission(Caller("machine:1", whole_grants()), name)
    for unpermitted in (
        caller(),
        caller(permission=permission, scope=Scope.GROUP),
        caller(permission=Permission.ORG_JOBS),
    ):
        with pytest.raises(Exception, match=rf"{permission}\.write"):
            check_job_type_permission(unpermitted, name)


@every_case(
    "named",
    ["HTTPS_CALL", "SERVER_RESTART", "restart", "NO_SUCH_TYPE", None, 5, ["AUTOMATION_RUN"]],
)
def test_unrestricted_types_need_no_further_permission(named: object) -> None:
    check_job_type_permission(caller(), named)


@every_case(
    ("within", "org_id", "reached"),
    [
        (ALL_ORGANISATIONS, None, ALL_ORGANISATIONS),
        (ALL_ORGANISATIONS, "acme", OrgScope("acme")),
        (OrgScope("acme"), None, OrgScope("acme")),
        (OrgScope("acme"), "acme", OrgScope("acme")),
        (OrgScope("acme"), "globex", None),
    ],
)
def test_an_org_filter_narrows_the_scope_and_never_widens_it(
    within: OrgScope, org_id: str | None, reached: OrgScope | None
) -> None:
    assert narrowed(within, org_id) == reached
