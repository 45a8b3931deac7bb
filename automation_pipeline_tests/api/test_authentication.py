"""JWTs of users."""

from datetime import UTC, datetime, timedelta
from typing import Any

import jwt
import pytest
from fastapi import FastAPI
from starlette.datastructures import Headers

from automation_pipeline.api import authentication
from automation_pipeline.api.authentication import JwtSettings, caller_of, token_in
from automation_pipeline.core.access import Action, Caller, Grant, Permission, Scope
from automation_pipeline_tests.api.conftest import client_of, user_token
from automation_pipeline_tests.cases import every_case

SECRET = "a-secret-that-is-long-enough-for-hs256"
ISSUING = JwtSettings(SECRET, issuer="ai-audit", audience="ai-audit")
GOOD: dict[str, Any] = {
    "sub": "12",
    "email": "anna@example.test",
    "iss": "ai-audit",
    "aud": "ai-audit",
    "groupes": ["NORD"],
    "crm_user_id": 77,
    "roles": ["operator"],
    "permission_grants": [
        {
            "key": "fiches",
            "read": True,
            "write": False,
            "read_scope": "GROUP",
            "write_scope": "ALL",
        },
        {"key": "fiches", "read": True, "read_scope": "SELF"},
        {
            "key": "audits",
            "read": True,
            "write": True,
            "read_scope": "ALL",
            "write_scope": "nonsense",
        },
        {"key": "unknown", "read": True, "read_scope": "ALL"},
    ],
}

FICHES: dict[str, Any] = {"key": "fiches", "read": True, "read_scope": "ALL"}


def token(secret: str = SECRET, algorithm: str = "HS256", without: str = "", **claims: Any) -> str:
    values = {**GOOD, "exp": datetime.now(UTC) + timedelta(minutes=5), **claims}
    values.pop(without, None)
    return jwt.encode(values, secret if algorithm != "none" else None, algorithm=algorithm)


def test_the_widest_grant_applies_and_an_unknown_scope_means_self() -> None:
    caller = caller_of(token(), ISSUING)
    assert caller is not None
    assert (caller.id, caller.name, caller.crm_user_id, caller.is_machine) == (
        "user:12",
        "anna@example.test",
        "77",
        False,
    )
    reach = caller.reach(Permission.FICHES, Action.READ)
    assert reach is not None
    assert (reach.scope, reach.groupes) == (Scope.GROUP, frozenset({"NORD"}))
    assert caller.reach(Permission.FICHES, Action.WRITE) is None
    written = caller.reach(Permission.AUDITS, Action.WRITE)
    assert written is not None
    assert written.scope is Scope.SELF
    assert set(caller.grants) == {Permission.FICHES, Permission.AUDITS}


@every_case(
    "token",
    [
        token(secret="another-secret-that-is-long-enough-too"),
        token(algorithm="none"),
        token("x" * 64, algorithm="HS512"),
        token(exp=datetime.now(UTC) - timedelta(seconds=1)),
        token(nbf=datetime.now(UTC) + timedelta(minutes=5)),
        token(iss="another"),
        token(aud="another"),
        *(token(without=claim) for claim in ("exp", "sub", "iss", "aud")),
        *(token(sub=sub) for sub in ("", " ", "\ud800", "a\0", "a\udfffb")),
        *(token(email=email) for email in ("a\0", "\udc00", 7, ["a"])),
        *(token(crm_user_id=crm_user) for crm_user in ("", "a\0", "\ud800", 7.5, True, [], {})),
        *(
            token(**{claim: given})
            for claim in ("groupes", "roles")
            for given in (["a\0"], ["\ud800"], [7], [[]], "a", {})
        ),
        *(
            token(permission_grants=given)
            for given in ("a", {}, ["a"], [[]], [None], [{}], [{"read": True}])
        ),
        *(
            token(permission_grants=[{"key": key, "read": True}])
            for key in ([], {}, 7, None, "fiches\0")
        ),
        *(
            token(permission_grants=[FICHES | wrong])
            for wrong in ({"read": 1}, {"read": "true"}, {"write": []})
        ),
        *(
            token(permission_grants=[FICHES | {name: 3}])
            for name in ("scope", "read_scope", "write_scope")
        ),
        *(token(exp=exp) for exp in ([], None, "soon", float("inf"))),
        token()[:-2] + "xx",
        "..",
        "a.b.c",
        "é.é.é",
    ],
)
def test_an_invalid_token_has_no_caller(token: str) -> None:
    assert caller_of(token, ISSUING) is None


def test_null_and_unknown_claims_are_ignored() -> None:
    nulls = dict.fromkeys(("email", "crm_user_id", "groupes", "roles", "permission_grants"))
    caller = caller_of(token(**nulls, teams=["\0"], iat=1), ISSUING)
    assert caller == Caller("user:12", {}, name="12")
    few = caller_of(token(permission_grants=[FICHES | {"teams": 7, "write": None}]), ISSUING)
    assert few is not None
    assert few.grants == {Permission.FICHES: Grant(Scope.ALL)}


@every_case(
    ("headers", "expected"),
    [
        ({}, None),
        ({"Authorization": "Bearer abc"}, "abc"),
        ({"Authorization": "bearer  abc "}, "abc"),
        ({"Authorization": "Bearer", "X-API-Key": "key"}, "key"),
        ({"Authorization": "Bearer  ", "X-API-Key": "key"}, "key"),
        ({"Authorization": "Basic abc", "X-API-Key": "key"}, "key"),
        ({"Authorization": "Bearer abc", "X-API-Key": "key"}, "abc"),
    ],
)
def test_a_bearer_token_precedes_an_api_key(headers: dict[str, str], expected: str | None) -> None:
    assert token_in(Headers(headers)) == expected


@pytest.mark.parametrize(("longer_by", "status"), [(0, 200), (1, 401)])
def test_a_token_has_a_maximum_length(
    api: FastAPI, monkeypatch: pytest.MonkeyPatch, longer_by: int, status: int
) -> None:
    given = user_token({"audit-configs.read": "ALL"})
    monkeypatch.setattr(authentication, "MAX_TOKEN_LENGTH", len(given) - longer_by)
    assert client_of(api, given).get("/api/audit-configs").status_code == status


@every_case(
    ("claim", "scopes"),
    [
        ({"read": True}, (Scope.SELF, None)),
        ({"read": True, "scope": "GROUP"}, (Scope.GROUP, None)),
        ({"read": True, "scope": "GROUP", "read_scope": "ALL"}, (Scope.ALL, None)),
        ({"read": True, "scope": "ALL", "read_scope": "nothing"}, (Scope.SELF, None)),
        ({"write": True, "scope": "ALL", "read_scope": "GROUP"}, (None, Scope.ALL)),
        ({"write": True, "scope": "ALL", "write_scope": "GROUP"}, (None, Scope.GROUP)),
        ({"read": False, "write": None, "scope": "ALL"}, (None, None)),
    ],
)
def test_a_grant_has_the_scope_of_its_action(
    claim: dict[str, object], scopes: tuple[Scope | None, Scope | None]
) -> None:
    caller = caller_of(token(permission_grants=[{"key": "fiches", **claim}]), ISSUING)
    assert caller is not None
    assert caller.grants == {Permission.FICHES: Grant(*scopes)}
