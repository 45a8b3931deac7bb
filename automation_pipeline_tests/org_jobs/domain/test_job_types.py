"""The types of jobs: their names, limits and performers, and what their payloads take."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import as_document
from automation_pipeline.org_jobs.models.job_types import (
    JOB_TYPES,
    checked_payload,
    job_type,
    job_types,
)
from automation_pipeline.org_jobs.models.jobs import Performer
from automation_pipeline.org_jobs.models.secrets import HOW
from automation_pipeline_tests.tables import every_case

AGENTS = [one for one in JOB_TYPES.values() if one.performer is Performer.AGENT]
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
# What makes a payload whole where something must be given.
LEAST: dict[str, dict[str, Any]] = {
    "RCON": {"command": "list"},
    "SEND_COMMAND": {"command": "list"},
    "SAVE_RESTORE": {"save": "a"},
    "SAVE_DELETE": {"save": "a"},
    "PLAYER_KICK": {"player": "Ann"},
    "PLAYER_BAN": {"player": "Ann"},
    "PLAYER_UNBAN": {"player": "Ann"},
    "PLAYER_WHITELIST": {"player": "Ann"},
    "PLAYER_UNWHITELIST": {"player": "Ann"},
    "PLAYER_MESSAGE": {"message": "Hello"},
    "MOD_SEARCH": {"query": "maps"},
    "MOD_INSTALL": {"mod": "maps"},
    "MOD_UNINSTALL": {"mod": "maps"},
    "MOD_ENABLE": {"mod": "maps"},
    "MOD_DISABLE": {"mod": "maps"},
    "MOD_UPDATE": {"mod": "maps"},
    "PROFILE_APPLY": {"profile": "pvp"},
    "PROFILE_DELETE": {"profile": "pvp"},
    "AUTOMATION_RUN": {"scheduleId": "11"},
    "PRICING_RULE_APPLY": {"ruleId": "11"},
    "HTTPS_CALL": {"url": "https://example.com"},
    "COMPANY_ENRICHMENT": {"company": "552032534"},
}


def faults(name: str, payload: object) -> dict[str, str]:
    with pytest.raises(InvalidInputError) as caught:
        checked_payload(job_type(name), payload)
    return dict(caught.value.fields)


def test_agents_do_the_33_types_of_the_origin() -> None:
    found: dict[str, int] = {}
    for one in AGENTS:
        family = one.name.partition("_")[0]
        found[family] = found.get(family, 0) + 1
    assert (found, len(AGENTS)) == (FAMILIES, 33)


@every_case(
    ("alias", "name"),
    [
        ("start", "SERVER_START"),
        ("stop", "SERVER_STOP"),
        ("restart", "SERVER_RESTART"),
        ("rcon", "RCON"),
    ],
)
def test_an_alias_is_another_name_of_its_type(alias: str, name: str) -> None:
    assert job_type(alias) is job_type(name)
    assert job_type(alias).name == name


@every_case("name", ["", "START", "server_start", "COMPANY", "x" * 5000])
def test_a_name_of_no_type_is_a_fault_of_the_field(name: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        job_type(name)
    [(where, why)] = caught.value.fields
    assert (where, len(why) < 200) == ("jobType", True)


def test_reading_is_short_restarts_and_updates_are_long_and_the_rest_has_a_quarter_of_an_hour() -> (
    None
):
    limits = {one.name: one.limit_seconds for one in AGENTS}
    reading = {one.name for one in AGENTS if not one.is_mutation}
    assert reading == {
        "SAVE_LIST",
        "REGION_HEALER_SCAN",
        "PLAYER_LIST",
        "MOD_LIST",
        "MOD_SEARCH",
        "PROFILE_LIST",
    }
    assert {name for name, limit in limits.items() if limit == 180} == reading
    long = {"SERVER_RESTART", "SERVER_SAFE_RESTART", "MOD_UPDATE", "MOD_UPDATE_ALL"}
    assert {name for name, limit in limits.items() if limit == 86_400} == long
    assert set(limits.values()) == {180, 900, 86_400}


@every_case(
    ("name", "limit", "permission"),
    [
        ("AUTOMATION_RUN", 86_400, "automation"),
        ("PRICING_RULE_APPLY", 86_400, "pricing.runs"),
        ("HTTPS_CALL", 180, None),
    ],
)
def test_this_system_does_its_own_under_their_permissions(
    name: str, limit: int, permission: str | None
) -> None:
    one = job_type(name)
    assert (one.performer, one.limit_seconds, one.permission) == (
        Performer.SERVICE,
        limit,
        permission,
    )


@every_case("name", JOB_TYPES)
def test_a_payload_is_taken_with_its_least_and_is_the_same_when_it_is_checked_again(
    name: str,
) -> None:
    stored = checked_payload(job_type(name), LEAST.get(name, {}))
    assert checked_payload(job_type(name), stored) == stored
    assert json.loads(json.dumps(stored)) == stored
    if name not in LEAST:
        assert checked_payload(job_type(name), None) == stored
    else:
        assert set(faults(name, {})) == {f"payload.{field}" for field in LEAST[name]}


@pytest.mark.parametrize("name", JOB_TYPES)
@given(
    field=st.from_regex(r"[a-z]{9,12}", fullmatch=True),
    secret=st.sampled_from(["password", "apiKey", "token"]),
)
def test_what_a_type_does_not_know_is_refused_and_so_is_a_secret(
    name: str, field: str, secret: str
) -> None:
    least = LEAST.get(name, {})
    assert f"payload.{field}" in faults(name, {**least, field: 1})
    assert HOW in faults(name, {**least, secret: "hunter2"})[f"payload.{secret}"]


@every_case(
    ("name", "payload", "where"),
    [
        ("RCON", {"command": "list\nstop"}, "command"),
        ("RCON", {"command": " "}, "command"),
        ("RCON", {"command": "x" * 1001}, "command"),
        ("RCON", {"command": "list", "timeoutSeconds": 121}, "timeoutSeconds"),
        ("RCON", {"command": "list", "password": "hunter2"}, "password"),
        ("SERVER_STOP", {"graceSeconds": -1}, "graceSeconds"),
        ("SERVER_STOP", {"graceSeconds": 1.5}, "graceSeconds"),
        ("SERVER_SAFE_RESTART", {"backup": "yes"}, "backup"),
        ("SAVE_RESTORE", {"save": "../other"}, "save"),
        ("SAVE_RESTORE", {"save": "a/b"}, "save"),
        ("SAVE_RETENTION", {"keep": 101}, "keep"),
        ("REGION_HEALER_SCAN", {"regions": ["1,2"]}, "regions.0"),
        ("PLAYER_BAN", {"player": "Ann", "minutes": 0}, "minutes"),
        ("MOD_INSTALL", {"mod": "/etc/passwd"}, "mod"),
        ("AUTOMATION_RUN", {"scheduleId": True}, "scheduleId"),
        ("AUTOMATION_RUN", {"scheduleId": "0"}, "scheduleId"),
        ("AUTOMATION_RUN", {"scheduleId": 2**63}, "scheduleId"),
        ("AUTOMATION_RUN", {"schedule_id": 1, "scheduleId": 1}, "schedule_id"),
        ("PRICING_RULE_APPLY", {"ruleId": "1.0"}, "ruleId"),
        ("PRICING_RULE_APPLY", {"ruleId": 1, "force": 1}, "force"),
    ],
)
def test_what_is_out_of_bounds_is_refused_by_its_field(
    name: str, payload: dict[str, Any], where: str
) -> None:
    assert set(faults(name, payload)) == {f"payload.{where}"}


def test_the_password_of_a_console_is_a_reference() -> None:
    payload = {"command": "list", "password": {"secretRef": "RCON"}}
    assert checked_payload(job_type("rcon"), payload)["password"] == {"secretRef": "RCON"}


def test_an_id_may_be_a_number_and_is_stored_as_a_text() -> None:
    assert checked_payload(job_type("AUTOMATION_RUN"), {"scheduleId": 11}) == {"scheduleId": "11"}


@every_case("payload", [[], "text", 1, True])
def test_a_payload_is_an_object(payload: object) -> None:
    assert faults("SERVER_START", payload) == {"payload": "must be an object"}


def test_a_payload_has_at_most_256_kb() -> None:
    payload = {"url": "https://example.com", "body": "é" * 131_000}
    assert checked_payload(job_type("HTTPS_CALL"), payload)["body"] == payload["body"]
    assert faults("HTTPS_CALL", {**payload, "body": "é" * 132_000}) == {
        "payload": "must not be larger than 256 kB"
    }


def test_every_type_is_shown_with_the_schema_of_its_payload() -> None:
    shown = [as_document(card) for card in job_types()]
    assert [card["name"] for card in shown] == list(JOB_TYPES)
    [rcon] = [card for card in shown if card["name"] == "RCON"]
    assert {
        name: rcon[name]
        for name in ("performer", "isMutation", "limitSeconds", "permission", "aliases")
    } == {
        "performer": "agent",
        "isMutation": True,
        "limitSeconds": 900,
        "permission": None,
        "aliases": ["rcon"],
    }
    schema: Any = rcon["payloadSchema"]
    assert (schema["required"], schema["additionalProperties"]) == (["command"], False)
    assert {"command", "password", "timeoutSeconds"} == set(schema["properties"])
    assert all(card["summary"] for card in shown)
