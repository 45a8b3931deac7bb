"""Audit configuration routes: create, read, change, reorder, validate and delete."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from automation_pipeline.api.responses import Answer, Listing
from automation_pipeline.audits.models.configs import ConfigShown, ConfigStats, ConfigStepShown
from automation_pipeline.audits.routes.configs import (
    CONFIG_EXAMPLE,
    STEP_EXAMPLE,
    ConfigChanged,
    ConfigCreated,
    Validity,
)
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.api.conftest import Login
from automation_pipeline_tests.audits.configurations import (
    FULL,
    add,
    add_audit,
    document,
    read,
    step_document,
)

PATH = "/api/audit-configs"
NEW_STEP = {name: value for name, value in step_document(9).items() if name != "position"}


def ok(answer: Any, status: int = 200) -> Any:
    assert answer.status_code == status, answer.text
    assert answer.json()["success"] is True
    return answer.json().get("data")


def refused(answer: Any, status: int, code: str) -> dict[str, Any]:
    document = answer.json()
    assert (answer.status_code, document["success"], document["code"]) == (status, False, code), (
        answer.text
    )
    return document


def fields(refusal: dict[str, Any]) -> list[str]:
    return [fault["field"] for fault in refusal["details"]]


def step_ids(client: TestClient, config_id: str) -> list[str]:
    return [step["id"] for step in ok(client.get(f"{PATH}/{config_id}"))["steps"]]


def make(client: TestClient, given: dict[str, Any] | None = None) -> str:
    return ok(client.post(PATH, json=given or document()), 201)["id"]


def test_a_configuration_is_created_and_read_back(client: TestClient) -> None:
    created = client.post(PATH, json=FULL)
    assert ok(created, 201) == {"id": "1", "name": FULL["name"]}
    Answer[ConfigCreated].model_validate(created.json())
    shown = ok(client.get(f"{PATH}/1"))
    for name, value in FULL.items():
        if name != "steps":
            assert shown[name] == value
    for given, stored in zip(FULL["steps"], shown["steps"], strict=True):
        assert given.items() <= stored.items()
    assert (shown["id"], shown["stepsCount"], shown["totalWeight"]) == ("1", 2, 12)
    assert shown["createdAt"] == shown["updatedAt"] == "2026-05-04T10:00:00.000Z"
    assert "stats" not in shown


def test_openapi_examples_are_accepted(client: TestClient) -> None:
    make(client, dict(CONFIG_EXAMPLE))
    assert (
        ok(client.post(f"{PATH}/1/steps", json=dict(STEP_EXAMPLE) | {"position": 2}), 201)[
            "position"
        ]
        == 2
    )


@pytest.mark.parametrize(
    ("given", "error", "faults"),
    [
        ({}, "Invalid create audit config input", ["name", "steps"]),
        (document(""), "Invalid create audit config input", ["name"]),
        (document(nmae=1), "Invalid create audit config input", ["nmae"]),
        (
            document() | {"steps": [step_document(1, weight=11)]},
            "Invalid create audit config input",
            ["steps.0.weight"],
        ),
        (
            document() | {"steps": [step_document(1), step_document(1)]},
            "Step positions must be unique",
            ["steps", "steps"],
        ),
    ],
)
def test_an_invalid_configuration_names_each_field(
    client: TestClient, given: dict[str, Any], error: str, faults: list[str]
) -> None:
    refusal = refused(client.post(PATH, json=given), 400, "VALIDATION_ERROR")
    assert (refusal["error"], fields(refusal)) == (error, faults)
    assert ok(client.get(f"{PATH}?include_inactive=true")) == []


def test_a_non_object_body_is_refused(client: TestClient) -> None:
    for body, code in ((b"{", "INVALID_JSON"), (b"[]", "VALIDATION_ERROR"), (b"", "INVALID_JSON")):
        refused(client.post(PATH, content=body), 400, code)


def test_an_idempotency_key_creates_one_configuration(client: TestClient) -> None:
    headers = {"Idempotency-Key": "k"}
    first, second = (client.post(PATH, json=document(), headers=headers) for _ in range(2))
    assert ok(first, 201) == ok(second, 201)
    refused(client.post(PATH, json=FULL, headers=headers), 409, "CONFLICT")
    assert len(ok(client.get(PATH))) == 1


def test_the_creator_is_the_authenticated_user(client: TestClient, login: Login) -> None:
    user = login({"audit-configs.write": "ALL", "audit-configs.read": "ALL"})
    make(user, document(createdBy="another"))
    make(client, document(createdBy="ops"))
    assert [ok(client.get(f"{PATH}/{number}"))["createdBy"] for number in (1, 2)] == [
        "user:12",
        "ops",
    ]
    ok(user.put(f"{PATH}/1", json={"createdBy": "another", "name": "Other"}))
    shown = ok(client.get(f"{PATH}/1"))
    assert (shown["createdBy"], shown["name"]) == ("user:12", "Other")


def test_the_list_includes_only_requested_parts(client: TestClient, database: Database) -> None:
    make(client, document("One"))
    make(client, document("Two", isActive=False))
    with database.transaction() as session:
        add_audit(session, 1, status="failed")
    answer = client.get(PATH)
    assert (answer.json()["count"], answer.json()["limit"], answer.json()["offset"]) == (1, 100, 0)
    assert [(one["id"], "steps" in one, "stats" in one) for one in ok(answer)] == [
        ("1", False, False)
    ]
    everything = client.get(f"{PATH}?include_inactive=true&include_steps=true&include_stats=true")
    Listing[ConfigShown].model_validate_json(everything.content)
    result = [
        (one["id"], len(one["steps"]), one["stats"]["failedAudits"]) for one in ok(everything)
    ]
    assert result == [("2", 3, 0), ("1", 3, 1)]
    assert [
        one["id"] for one in ok(client.get(f"{PATH}?include_inactive=true&limit=1&offset=1"))
    ] == ["1"]


def test_an_invalid_query_names_the_parameter(client: TestClient) -> None:
    wrong = {"limit": "0", "offset": "-1", "include_steps": "maybe"}
    for name, value in wrong.items():
        assert fields(refused(client.get(PATH, params={name: value}), 400, "VALIDATION_ERROR")) == [
            name
        ]


def test_null_clears_a_field_and_omitted_steps_are_kept(client: TestClient) -> None:
    make(client, FULL)
    before = step_ids(client, "1")
    changed = client.put(f"{PATH}/1", json={"description": None, "systemPrompt": None})
    assert ok(changed) == {"id": "1", "name": FULL["name"], "stepsCount": 2}
    Answer[ConfigChanged].model_validate(changed.json())
    shown = ok(client.get(f"{PATH}/1"))
    assert (shown["description"], shown["systemPrompt"], shown["createdBy"]) == (None, None, "ops")
    assert step_ids(client, "1") == before
    assert ok(client.put(f"{PATH}/1", json=document(steps=4)))["stepsCount"] == 4
    assert len(step_ids(client, "1")) == 4
    assert (
        ok(client.put(f"{PATH}/1", json=ok(client.get(f"{PATH}/1?include_stats=true"))))[
            "stepsCount"
        ]
        == 4
    )


def test_an_invalid_change_names_each_field(client: TestClient) -> None:
    make(client)
    refusal = refused(
        client.put(f"{PATH}/1", json={"name": None, "steps": []}), 400, "VALIDATION_ERROR"
    )
    assert refusal["error"] == "Invalid update audit config input"
    assert set(fields(refusal)) == {"name", "steps"}


def test_steps_can_be_added_changed_and_deleted(client: TestClient) -> None:
    make(client)
    added = client.post(f"{PATH}/1/steps", json=NEW_STEP | {"position": 4})
    ConfigStepShown.model_validate_json(str(added.text).partition('"data":')[2].removesuffix("}"))
    step = ok(added, 201)
    assert step.items() >= (NEW_STEP | {"position": 4}).items()
    assert ok(client.post(f"{PATH}/1/steps", json=NEW_STEP), 201)["position"] == 5
    changed = ok(client.put(f"{PATH}/steps/{step['id']}", json={"weight": 9, "description": "Why"}))
    assert changed == step | {"weight": 9, "description": "Why"}
    moved = ok(client.put(f"{PATH}/steps/{step['id']}", json={"position": 6}))
    assert moved["position"] == 5
    assert client.delete(f"{PATH}/steps/{step['id']}").json() == {
        "success": True,
        "message": "Audit step deleted",
    }
    assert [one["position"] for one in ok(client.get(f"{PATH}/1"))["steps"]] == [1, 2, 3, 4]
    refused(client.delete(f"{PATH}/steps/{step['id']}"), 404, "NOT_FOUND")


@pytest.mark.parametrize("verb", ["add", "move"])
def test_a_taken_position_is_refused_and_the_free_one_is_named(
    client: TestClient, verb: str
) -> None:
    make(client)
    given = NEW_STEP | {"position": 2}
    third = step_ids(client, "1")[2]
    answer = (
        client.post(f"{PATH}/1/steps", json=given)
        if verb == "add"
        else client.put(f"{PATH}/steps/{third}", json=given)
    )
    refusal = refused(answer, 400, "VALIDATION_ERROR")
    assert refusal["error"] == "Position 2 is already taken. Available positions: 4"
    assert fields(refusal) == ["position"]


def test_the_only_step_cannot_be_deleted(client: TestClient) -> None:
    make(client, document(steps=1))
    refused(client.delete(f"{PATH}/steps/{step_ids(client, '1')[0]}"), 409, "CONFLICT")


def test_steps_can_be_reordered(client: TestClient) -> None:
    make(client)
    first, second, third = step_ids(client, "1")
    result = ok(
        client.put(f"{PATH}/1/steps/reorder", json={"stepIds": [third, int(first), second]})
    )
    assert [(step["id"], step["position"]) for step in result] == [
        (third, 1),
        (first, 2),
        (second, 3),
    ]
    assert step_ids(client, "1") == [third, first, second]


ORDERS: list[tuple[object, str]] = [
    ([], "stepIds"),
    (["1", "2"], "stepIds"),
    (["1", "2", "2"], "stepIds"),
    (["1", "2", "9"], "stepIds"),
    (["1", "2", "x"], "stepIds.2"),
    ([1, 2, True], "stepIds.2"),
    ([1, 2, 3.5], "stepIds.2"),
    ([1, 2, 2**63], "stepIds.2"),
    ("123", "stepIds"),
]


def test_an_incomplete_order_is_refused(client: TestClient) -> None:
    make(client)
    before = step_ids(client, "1")
    for order, field in ORDERS:
        answer = client.put(f"{PATH}/1/steps/reorder", json={"stepIds": order})
        assert set(fields(refused(answer, 400, "VALIDATION_ERROR"))) == {field}
    assert step_ids(client, "1") == before


def test_a_stored_configuration_can_be_validated(client: TestClient) -> None:
    make(client)
    answer = client.get(f"{PATH}/1/validate")
    Answer[Validity].model_validate(answer.json())
    assert ok(answer) == {"valid": True, "errors": []}


def test_statistics_of_a_configuration_come_from_its_audits(
    client: TestClient, database: Database
) -> None:
    make(client)
    nothing = client.get(f"{PATH}/1/stats")
    Answer[ConfigStats].model_validate_json(nothing.content)
    assert ok(nothing) == {
        "allAudits": 0, "totalAudits": 0, "completedAudits": 0, "failedAudits": 0, "averageScore": None,
        "averageDurationMs": None, "lastUsedAt": None, "complianceRate": None,
    }  # fmt: skip
    with database.transaction() as session:
        add_audit(
            session, 1, status="completed", is_compliant=True, score_percentage=80, duration_ms=5
        )
    result = ok(client.get(f"{PATH}/1/stats"))
    assert (result["completedAudits"], result["averageScore"], result["complianceRate"]) == (
        1,
        80.0,
        100.0,
    )
    assert result["lastUsedAt"] == "2026-05-04T10:00:00.000Z"
    assert ok(client.get(f"{PATH}/1?include_stats=true"))["stats"] == result


def test_a_configuration_in_use_cannot_be_deleted(client: TestClient, database: Database) -> None:
    used, unused = add(database), add(database)
    with database.transaction() as session:
        add_audit(session, used)
    refusal = refused(client.delete(f"{PATH}/{used}"), 409, "CONFLICT")
    assert "deactivate it instead" in refusal["error"]
    assert read(database, used).config.name == "Sales"
    assert client.delete(f"{PATH}/{unused}").json() == {
        "success": True,
        "message": "Audit config deleted",
    }
    refused(client.delete(f"{PATH}/{unused}"), 404, "NOT_FOUND")


CALLS = [
    ("GET", "/7"), ("PUT", "/7"), ("DELETE", "/7"), ("POST", "/7/steps"), ("PUT", "/7/steps/reorder"),
    ("GET", "/7/validate"), ("GET", "/7/stats"), ("PUT", "/steps/7"), ("DELETE", "/steps/7"),
]  # fmt: skip


def body_of(path: str) -> dict[str, Any]:
    return (
        {"stepIds": ["1"]}
        if path.endswith("reorder")
        else dict(NEW_STEP)
        if "steps" in path
        else {}
    )


def call(client: TestClient, method: str, path: str) -> Any:
    return client.request(
        method, PATH + path, json=None if method in {"GET", "DELETE"} else body_of(path)
    )


def test_unknown_configurations_and_steps_are_404(client: TestClient) -> None:
    for method, path in CALLS:
        refusal = refused(call(client, method, path), 404, "NOT_FOUND")
        assert (
            refusal["error"]
            == f"Audit {'step' if path.startswith('/steps') else 'config'} with ID '7' not found"
        )


def test_a_malformed_configuration_id_is_400(client: TestClient) -> None:
    for wrong in ("one", "0", "-1", "1.5", "9223372036854775808"):
        for method, path in CALLS:
            refusal = refused(
                call(client, method, path.replace("7", wrong)), 400, "VALIDATION_ERROR"
            )
            assert fields(refusal) == ["step_id" if path.startswith("/steps") else "config_id"]


def test_reading_and_writing_need_separate_permissions(login: Login) -> None:
    reader, stranger = login({"audit-configs.read": "SELF"}), login({"audits.write": "ALL"})
    for method, path in [("GET", ""), ("POST", ""), *CALLS]:
        refused(call(stranger, method, path), 403, "AUTHORIZATION_ERROR")
        answer = call(reader, method, path)
        if method == "GET":
            assert answer.status_code in {200, 404}
        else:
            refused(answer, 403, "AUTHORIZATION_ERROR")
