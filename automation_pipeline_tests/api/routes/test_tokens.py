"""API token routes: create, list, revoke and access."""

from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import text

from automation_pipeline.access.routes import NIGHTLY, TokenIssued, TokenShown
from automation_pipeline.api.responses import Answer, Listing
from automation_pipeline.org_jobs.models.organisations import ALL_ORGANISATIONS
from automation_pipeline.org_jobs.organisations import create_organisation
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.api.conftest import Login, client_of
from automation_pipeline_tests.fakes.clock import FakeClock

PATH = "/api/admin/tokens"
TOKEN_REQUEST = {"name": "x", "permissions": ["audit-configs"], "scope": "ALL"}
ADMIN = {"admin.permissions.read": "ALL", "admin.permissions.write": "ALL"}


def issue(client: TestClient, **about: object) -> dict[str, Any]:
    answer = client.post(PATH, json=TOKEN_REQUEST | about)
    assert answer.status_code == 201, answer.text
    Answer[TokenIssued].model_validate_json(answer.content)
    return answer.json()["data"]


def status_of(
    client: TestClient, token: str, path: str = "/api/audit-configs", header: str = "Authorization"
) -> int:
    value = f"Bearer {token}" if header == "Authorization" else token
    return client.get(path, headers={"Authorization": "", header: value}).status_code


def test_a_token_grants_its_permissions_until_it_is_revoked(client: TestClient) -> None:
    issued = issue(client)
    assert status_of(client, issued["token"]) == 200
    assert status_of(client, issued["token"], header="X-API-Key") == 200
    assert status_of(client, issued["token"], "/api/automation/schedules") == 403
    revoked = client.delete(f"{PATH}/{issued['id']}")
    Answer[TokenShown].model_validate_json(revoked.content)
    assert revoked.json()["data"]["state"] == "revoked"
    assert status_of(client, issued["token"]) == 401
    assert client.delete(f"{PATH}/{issued['id']}").json() == revoked.json()


def test_the_token_is_returned_once_and_never_stored(
    client: TestClient, database: Database
) -> None:
    answer = client.post(PATH, json=dict(NIGHTLY), headers={"Idempotency-Key": "k"})
    token = answer.json()["data"]["token"]
    assert answer.headers["cache-control"] == "no-store"
    assert token not in client.get(f"{PATH}?include_inactive=true").text
    with database.reading() as session:
        for table in ("api_tokens", "idempotency_keys"):
            assert token not in str(session.execute(text(f"SELECT * FROM {table}")).all())  # noqa: S608  constant table names


def test_the_list_has_only_active_tokens_by_default(client: TestClient) -> None:
    first, second, third = (issue(client, name=name)["id"] for name in ("one", "two", "three"))
    client.delete(f"{PATH}/{second}")
    answer = client.get(PATH)
    Listing[TokenShown].model_validate_json(answer.content)
    assert [one["id"] for one in answer.json()["data"]] == [third, first]
    assert answer.json()["count"] == 2
    everything = client.get(f"{PATH}?include_inactive=true&limit=2&offset=1").json()["data"]
    assert [(one["id"], one["state"]) for one in everything] == [
        (second, "revoked"),
        (first, "active"),
    ]


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"scope": "GROUP"}, "groupes"),
        ({"permissions": ["nope"]}, "permissions.0"),
        ({"name": None}, "name"),
    ],
)
def test_an_invalid_token_request_names_the_field(
    client: TestClient, given: dict[str, object], field: str
) -> None:
    answer = client.post(PATH, json=TOKEN_REQUEST | given)
    assert (answer.status_code, answer.json()["error"]) == (400, "Invalid token")
    assert [fault["field"] for fault in answer.json()["details"]] == [field]


def test_a_token_cannot_exceed_the_permissions_of_its_creator(
    client: TestClient, login: Login
) -> None:
    admin = login(ADMIN | {"fiches.read": "GROUP"}, groupes=["NORD"])
    own = {"permissions": ["fiches"], "scope": "GROUP", "groupes": ["NORD"]}
    for beyond in (
        TOKEN_REQUEST,
        {**TOKEN_REQUEST, **own, "groupes": ["SUD"]},
        {**TOKEN_REQUEST, **own, "permissions": ["*"]},
    ):
        assert admin.post(PATH, json=beyond).status_code == 400
    assert client.get(PATH).json()["data"] == []
    assert issue(admin, **own)["groupes"] == ["NORD"]


def test_tokens_beyond_the_callers_permissions_are_hidden(client: TestClient, login: Login) -> None:
    of_groups = {"permissions": ["fiches"], "scope": "GROUP"}
    beyond = [
        issue(client, permissions=["fiches"]),
        issue(client, **of_groups, groupes=["SUD"]),
        issue(client, **of_groups | {"permissions": ["audits"]}, groupes=["NORD"]),
    ]
    older, own = (issue(client, **of_groups, groupes=["NORD"]) for _ in range(2))
    admin = login(dict.fromkeys([*ADMIN, "fiches.read"], "GROUP"), groupes=["NORD"])
    missing = admin.delete(f"{PATH}/977").json()
    for one in beyond:
        refused = admin.delete(f"{PATH}/{one['id']}")
        assert refused.status_code == 404
        assert refused.json()["error"] == missing["error"].replace("977", one["id"])
    assert [one["id"] for one in admin.get(PATH).json()["data"]] == [own["id"], older["id"]]
    assert [one["id"] for one in admin.get(f"{PATH}?limit=1&offset=1").json()["data"]] == [
        older["id"]
    ]
    assert admin.delete(f"{PATH}/{own['id']}").json()["data"]["state"] == "revoked"
    assert {one["state"] for one in client.get(f"{PATH}?include_inactive=true").json()["data"]} == {
        "active",
        "revoked",
    }
    assert len(client.get(PATH).json()["data"]) == 4


@pytest.mark.parametrize("days", [None, 1, 90])
def test_a_token_expires_no_later_than_the_token_that_created_it(
    api: FastAPI, client: TestClient, days: int | None
) -> None:
    parent = issue(client, permissions=["*"], expiresInDays=30)
    child = issue(client_of(api, parent["token"]), expiresInDays=days)
    assert (
        (child["expiresAt"] < parent["expiresAt"])
        if days == 1
        else (child["expiresAt"] == parent["expiresAt"])
    )
    lasting = issue(client_of(api, issue(client, permissions=["*"])["token"]), expiresInDays=days)
    assert (lasting["expiresAt"] is None) == (days is None)


def test_only_administrators_can_list_create_and_revoke_tokens(
    client: TestClient, login: Login
) -> None:
    issued = issue(client)
    stranger = login({"audit-configs.write": "ALL", "admin.users.write": "ALL"})
    reader = login({"admin.permissions.read": "ALL"})
    assert reader.get(PATH).status_code == 200
    for unauthorised in (stranger, reader):
        assert unauthorised.post(PATH, json=TOKEN_REQUEST).status_code == 403
        assert unauthorised.delete(f"{PATH}/{issued['id']}").status_code == 403
    assert stranger.get(PATH).status_code == 403
    assert status_of(client, issued["token"]) == 200


def test_an_unknown_token_is_404_and_a_malformed_id_400(client: TestClient) -> None:
    assert client.delete(f"{PATH}/977").json()["error"] == "Token with ID '977' not found"
    assert [
        client.delete(f"{PATH}/{wrong}").status_code for wrong in ("977", "x", "0", "9" * 30)
    ] == [
        404,
        400,
        400,
        400,
    ]


def test_a_token_needs_an_existing_organisation(
    client: TestClient, database: Database, clock: FakeClock
) -> None:
    request = {
        "name": "agents",
        "orgId": "acme",
        "permissions": ["org-jobs.agents.write"],
        "scope": "ALL",
    }
    refused = client.post(PATH, json=request)
    assert (refused.status_code, "there is no organisation 'acme'" in refused.text) == (400, True)
    create_organisation(
        {"id": "acme", "name": "Acme"},
        within=ALL_ORGANISATIONS,
        database=database,
        clock=clock,
        actor="user:1",
    )
    issued = issue(client, **request)
    assert issued["orgId"] == "acme"
    assert status_of(client, issued["token"]) == 403
    assert status_of(client, issued["token"], PATH) == 403
    [listed] = client.get(PATH).json()["data"]
    assert listed["orgId"] == "acme"


def test_an_organisation_token_cannot_exceed_its_creators_permissions(
    login: Login, database: Database, clock: FakeClock
) -> None:
    create_organisation(
        {"id": "acme", "name": "Acme"},
        within=ALL_ORGANISATIONS,
        database=database,
        clock=clock,
        actor="user:1",
    )
    request = {"name": "agents", "orgId": "acme", "permissions": ["org-jobs"], "scope": "ALL"}
    for own in ({}, {"org-jobs.read": "GROUP"}):
        refused = login(ADMIN | own).post(PATH, json=request)
        assert refused.status_code == 400, refused.text
    created = login(ADMIN | {"org-jobs.read": "ALL"}).post(PATH, json=request)
    assert created.status_code == 201, created.text
