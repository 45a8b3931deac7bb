"""Built-in job types, and payloads validated by models and JSON schemas."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import as_document, parse
from automation_pipeline.org_jobs.models.job_types import (
    JOB_TYPES,
    OwnTypeInput,
    checked_payload,
    job_type,
    job_types,
)
from automation_pipeline.org_jobs.models.jobs import JobType, Performer
from automation_pipeline.org_jobs.models.payloads import PLAIN_SECRET
from automation_pipeline_tests.cases import every_case

AGENTS = [one for one in JOB_TYPES.values() if one.performer is Performer.AGENT]
# The type names of the original system, grouped by prefix.
FAMILIES = {
    "SERVER": 6,
    "RCON": 1,
    "SEND": 1,
    "SAVE": 5,
    "REGION": 2,
    "PLAYER": 7,
    "MOD": 8,
    "PROFILE": 3,
}
REFERENCE = {"secretRef": "TOKEN"}


def own(schema: Mapping[str, object] | None) -> JobType:
    return JobType(
        name="REPORT_EXPORT",
        performer=Performer.AGENT,
        is_mutation=True,
        limit_seconds=60,
        payload=schema,
        summary="For tests.",
    )


def faults(type_: JobType, payload: object) -> dict[str, str]:
    try:
        checked_payload(type_, payload)
    except InvalidInputError as error:
        return dict(error.fields)
    return {}


def test_every_organisation_has_the_33_built_in_types() -> None:
    found: dict[str, int] = {}
    for one in AGENTS:
        family = one.name.partition("_")[0]
        found[family] = found.get(family, 0) + 1
    assert (found, len(AGENTS)) == (FAMILIES, 33)
    reading = {one.name for one in AGENTS if not one.is_mutation}
    assert {one.name for one in AGENTS if one.limit_seconds == 180} == reading
    assert reading == {
        "SAVE_LIST",
        "REGION_HEALER_SCAN",
        "PLAYER_LIST",
        "MOD_LIST",
        "MOD_SEARCH",
        "PROFILE_LIST",
    }
    long = {"SERVER_RESTART", "SERVER_SAFE_RESTART", "MOD_UPDATE", "MOD_UPDATE_ALL"}
    assert {one.name for one in AGENTS if one.limit_seconds == 86_400} == long
    assert {one.limit_seconds for one in AGENTS} == {180, 900, 86_400}


def test_service_has_four_types() -> None:
    service = {
        name: (one.limit_seconds, one.permission, one.is_mutation)
        for name, one in JOB_TYPES.items()
        if one.performer is Performer.SERVICE
    }
    assert service == {
        "AUTOMATION_RUN": (86_400, "automation", True),
        "PRICING_RULE_APPLY": (86_400, "pricing.runs", True),
        "COMPANY_ENRICHMENT": (86_400, "enrichment", True),
        "HTTPS_CALL": (180, None, True),
    }


def test_type_is_found_by_name_and_alias() -> None:
    aliases = {
        "start": "SERVER_START",
        "stop": "SERVER_STOP",
        "restart": "SERVER_RESTART",
        "rcon": "RCON",
    }
    assert {alias: job_type(alias).name for alias in aliases} == aliases
    for name in ("", "START", "server_start", "COMPANY", "x" * 5000):
        with pytest.raises(InvalidInputError) as caught:
            job_type(name)
        assert caught.value.fields == (("jobType", f"is not a type of job: {name[:100]!r}"),)


def test_an_organisations_type_is_found_before_the_built_in_one() -> None:
    mine = own(None)
    assert job_type("REPORT_EXPORT", {"REPORT_EXPORT": mine}) is mine
    assert job_type("restart", {"SERVER_RESTART": mine}) is mine


@every_case(
    ("name", "payload", "where"),
    [
        ("SERVER_RESTART", None, ()),
        ("SERVER_RESTART", {"graceSeconds": 60, "extra": [1]}, ()),
        ("SERVER_RESTART", [], ("payload",)),
        ("SERVER_RESTART", {"password": "hunter2"}, ("payload.password",)),
        ("RCON", {}, ("payload.command",)),
        ("RCON", {"command": "list", "password": REFERENCE}, ()),
        ("RCON", {"command": "list", "password": "hunter2"}, ("payload.password",)),
        ("RCON", {"command": "list\nstop"}, ("payload.command",)),
        ("RCON", {"command": " "}, ("payload.command",)),
        ("RCON", {"command": "x" * 1001}, ("payload.command",)),
        ("SAVE_RESTORE", {"save": "../other"}, ("payload.save",)),
        ("MOD_INSTALL", {"mod": "/etc/passwd"}, ("payload.mod",)),
        ("PLAYER_KICK", {"player": "Ann", "reason": "Language"}, ()),
        ("PLAYER_MESSAGE", {"message": "Hello"}, ()),
        ("PROFILE_APPLY", {}, ("payload.profile",)),
        ("AUTOMATION_RUN", {"scheduleId": True}, ("payload.scheduleId",)),
        ("AUTOMATION_RUN", {"scheduleId": "0"}, ("payload.scheduleId",)),
        ("AUTOMATION_RUN", {"scheduleId": 2**63}, ("payload.scheduleId",)),
        ("AUTOMATION_RUN", {"schedule_id": 1, "scheduleId": 1}, ("payload.schedule_id",)),
        ("PRICING_RULE_APPLY", {"ruleId": "1.0"}, ("payload.ruleId",)),
        ("PRICING_RULE_APPLY", {"ruleId": 1, "force": 1}, ("payload.force",)),
        ("PRICING_RULE_APPLY", {"ruleId": 1, "token": "hunter2"}, ("payload.token",)),
    ],
)
def test_a_payload_is_accepted_or_refused_by_field(
    name: str, payload: object, where: tuple[str, ...]
) -> None:
    assert tuple(faults(job_type(name), payload)) == where


SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["format"],
    "additionalProperties": False,
    "properties": {
        "format": {"enum": ["csv", "pdf"]},
        "rows": {"type": "integer", "minimum": 1},
        "token": {"type": "string", "minLength": 8},
        "to": {"type": "array", "items": {"type": "string", "pattern": "@"}},
        "inner": {"type": "object", "required": ["x"]},
    },
}


@every_case(
    ("payload", "expected"),
    [
        ({"format": "csv", "rows": 1, "to": ["a@b"]}, {}),
        ({}, {"payload.format": "is required"}),
        ({"format": "pdf", "rows": 0}, {"payload.rows": "is less than the minimum of 1"}),
        ({"format": "pdf", "rows": "x"}, {"payload.rows": 'is not of type "integer"'}),
        ({"format": "pdf", "to": ["a@b", "c"]}, {"payload.to.1": 'does not match "@"'}),
        ({"format": "pdf", "inner": {}}, {"payload.inner.x": "is required"}),
        ({"format": "pdf", "colour": "red"}, {"payload.colour": "is not a known field"}),
        ({"format": "pdf", "token": REFERENCE}, {}),
        ({"format": "pdf", "to": [REFERENCE]}, {}),
        ({"format": "pdf", "rows": REFERENCE}, {"payload.rows": 'is not of type "integer"'}),
        (
            {"format": "pdf", "token": "12345678"},
            {"payload.token": PLAIN_SECRET},
        ),
    ],
)
def test_a_payload_is_validated_by_its_schema(
    payload: dict[str, Any], expected: dict[str, str]
) -> None:
    assert faults(own(SCHEMA), payload) == expected


def test_no_error_quotes_a_payload_value() -> None:
    result = faults(
        own({"properties": {"x": {"enum": ["a"]}, "y": {"maxLength": 3}}}),
        {"x": "hunter2", "y": "hunter2"},
    )
    assert set(result) == {"payload.x", "payload.y"}
    assert "hunter2" not in str(result)
    long = faults(own({"properties": {"x": {"enum": ["a" * 400]}}}), {"x": "b"})
    assert len(long["payload.x"]) == 300


@every_case(
    ("schema", "is_accepted"),
    [
        (None, True),
        ({}, True),
        (SCHEMA, True),
        ([], False),
        ({"type": "strin"}, False),
        ({"properties": 5}, False),
        ({"pattern": "("}, False),
        ({"pattern": "(?=a)"}, False),
        ({"$ref": "#"}, False),
        ({"$ref": "https://example.com/schema.json"}, False),
        ({"properties": {"x": {"$dynamicRef": "#x"}}}, False),
        ({"$schema": "https://example.com/mine"}, True),
        ({"title": "x" * (16 * 1024 - len('{"title": ""}'))}, True),
        ({"title": "x" * (16 * 1024 - len('{"title": ""}') + 1)}, False),
        ({"title": "é" * (16 * 1024 - len('{"title": ""}'))}, True),
        ({"title": "a\0b"}, False),
        (json.loads('{"not":' * 30 + "{}" + "}" * 30), False),
    ],
)
def test_only_a_usable_schema_is_stored(schema: object, *, is_accepted: bool) -> None:
    given = {"name": "REPORT_EXPORT", "summary": "Export.", "payloadSchema": schema}
    found: list[str] = []
    try:
        parse(OwnTypeInput, given, "Invalid job type")
    except InvalidInputError as error:
        found = [where for where, _ in error.fields]
    assert found == ([] if is_accepted else ["payloadSchema"])


@every_case(
    ("schema", "why"),
    [
        ([], "must be an object or null"),
        ({"title": "x" * 17_000}, "must not be larger than 16 kB"),
        ({"title": "a\0b"}, "must not hold the character NUL"),
        (json.loads('{"not":' * 30 + "{}" + "}" * 30), "must not be nested more than 20 deep"),
        ({"$ref": "#"}, "must not use $ref: write the schema without references"),
        ({"properties": 5}, 'is not a JSON Schema: the value is not of type "object"'),
    ],
)
def test_the_error_about_a_schema_says_why(schema: object, why: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        parse(OwnTypeInput, {"name": "X", "summary": "X.", "payloadSchema": schema}, "Invalid")
    assert refused.value.fields == (("payloadSchema", why),)


@every_case(
    ("fields", "where"),
    [
        ({"name": "report"}, "name"),
        ({"name": "X" * 101}, "name"),
        ({"name": "HTTPS_CALL"}, "name"),
        ({"summary": ""}, "summary"),
        ({"limitSeconds": 0}, "limitSeconds"),
        ({"limitSeconds": 86_401}, "limitSeconds"),
        ({"isMutation": "yes"}, "isMutation"),
        ({"performer": "service"}, "performer"),
    ],
)
def test_the_fields_of_a_job_type_have_limits(fields: dict[str, object], where: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse(OwnTypeInput, {"name": "X", "summary": "X.", **fields}, "Invalid job type")
    assert [field for field, _ in caught.value.fields] == [where]


def test_an_id_may_be_a_number_and_is_stored_as_a_text() -> None:
    assert checked_payload(job_type("AUTOMATION_RUN"), {"scheduleId": 11}) == {"scheduleId": "11"}


def test_payloads_of_this_system_have_defaults() -> None:
    payloads = {
        "PRICING_RULE_APPLY": {"ruleId": "1"},
        "COMPANY_ENRICHMENT": {"company": "552081317"},
    }
    for name, payload in payloads.items():
        assert checked_payload(job_type(name), payload) == {**payload, "force": False}


def test_a_payload_has_at_most_256_kb() -> None:
    payload = {"url": "https://example.com", "body": ""}
    rest = 256 * 1024 - len(json.dumps(payload))
    largest = {**payload, "body": "é" * (rest // 2) + "e" * (rest % 2)}
    assert checked_payload(job_type("HTTPS_CALL"), largest)["body"] == largest["body"]
    for type_ in (job_type("HTTPS_CALL"), job_type("SERVER_START")):
        assert faults(type_, {**largest, "body": f"{largest['body']}e"}) == {
            "payload": "must not be larger than 256 kB"
        }


def test_every_type_is_shown_with_the_schema_of_its_payload() -> None:
    shown = {card.name: as_document(card) for card in job_types()}
    assert list(shown) == list(JOB_TYPES)
    assert shown["RCON"]["aliases"] == ["rcon"]
    schemas: Any = {name: card["payloadSchema"] for name, card in shown.items()}
    assert schemas["SERVER_RESTART"] is None
    assert schemas["HTTPS_CALL"]["required"] == ["url"]
    assert all(card["summary"] for card in shown.values())
    lengths = {
        (field, schema["properties"][field]["maxLength"]): {
            name for name, other in schemas.items() if other == schema
        }
        for name, schema in schemas.items()
        if schema and shown[name]["performer"] == "agent"
        for field in schema["required"]
    }
    assert lengths == {
        ("command", 1000): {"RCON", "SEND_COMMAND"},
        ("message", 1000): {"PLAYER_MESSAGE"},
        ("player", 200): {name for name in schemas if name.startswith("PLAYER_")}
        - {"PLAYER_LIST", "PLAYER_MESSAGE"},
        ("query", 200): {"MOD_SEARCH"},
        ("save", 120): {"SAVE_RESTORE", "SAVE_DELETE"},
        ("mod", 120): {name for name in schemas if name.startswith("MOD_")}
        - {"MOD_LIST", "MOD_SEARCH", "MOD_UPDATE_ALL"},
        ("profile", 120): {"PROFILE_APPLY", "PROFILE_DELETE"},
    }
