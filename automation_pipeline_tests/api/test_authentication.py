"""JWTs of users."""

from datetime import UTC, datetime, timedelta
from typing import Any

import jwt

from automation_pipeline.api.authentication import JwtSettings, caller_of
from automation_pipeline.core.access import Action, Caller, Grant, Permission, Scope
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
