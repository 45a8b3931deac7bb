"""Rules of machine tokens: format, permissions, delegation, state and requests."""

import hashlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.access.models import (
    ORGANISATION_PERMISSIONS,
    SECRET_BYTES,
    ApiToken,
    excess_grants,
    format_token,
    grants_of,
    is_token,
    normalise_permissions,
    parse_token_request,
    permission_error,
    token_document,
    token_hash,
    token_prefix,
)
from automation_pipeline.core.access import (
    Action,
    Caller,
    Grant,
    Permission,
    Reach,
    Scope,
    whole_grants,
)
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline_tests.cases import every_case

secrets = st.binary(min_size=SECRET_BYTES, max_size=SECRET_BYTES)


@given(secrets, secrets)
def test_different_secrets_give_different_tokens_and_hashes(one: bytes, other: bytes) -> None:
    tokens = format_token(one), format_token(other)
    assert all(map(is_token, tokens))
    assert (tokens[0] == tokens[1]) is (one == other)
    assert (token_hash(tokens[0]) == token_hash(tokens[1])) is (one == other)


@given(secrets)
def test_the_hash_is_sha_256_and_does_not_contain_the_token(secret: bytes) -> None:
    token = format_token(secret)
    assert token_hash(token) == hashlib.sha256(token.encode()).hexdigest()
    assert token[4:] not in token_hash(token)


def test_the_visible_prefix_leaves_more_than_200_bits_secret() -> None:
    token = format_token(bytes(range(SECRET_BYTES)))
    assert token.startswith(token_prefix(token))
    assert token_prefix(token).startswith("apt_")
    assert (len(token) - len(token_prefix(token))) * 6 > 200


@every_case(
    "text",
    [
        "", "apt_", "apt_short", "x" * 47, "APT_" + "a" * 43, "apt_" + "a" * 42, "apt_" + "a" * 44,
        "apt_" + "a" * 42 + "é", "apt_" + "a" * 42 + "\n", "apt_" + "a" * 43 + "\n", " apt_" + "a" * 43,
        "apt_" + "a" * 42 + "\ud800", "apt_" + "a" * 42 + "\0",
    ],
)  # fmt: skip
def test_texts_in_another_format_are_not_tokens(text: str) -> None:
    assert not is_token(text)


@given(st.text())
def test_is_token_accepts_any_text_without_error(text: str) -> None:
    assert is_token(text) is False


NOW = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)
MOMENT = timedelta(microseconds=1)
TOKEN = ApiToken(
    id=3,
    name="nightly",
    token_hash="0" * 64,
    prefix="apt_abcdef",
    permissions=("automation.write", "fiches.read"),
    scope=Scope.GROUP,
    groupes=("NORD",),
    crm_user_id=None,
    created_at=NOW,
    expires_at=None,
    last_used_at=None,
    revoked_at=None,
)


@every_case(
    ("expires", "revoked", "state"),
    [
        (None, None, "active"),
        (NOW + MOMENT, None, "active"),
        (NOW, None, "expired"),
        (NOW - MOMENT, None, "expired"),
        (None, NOW, "revoked"),
        (NOW - MOMENT, NOW, "revoked"),
        (None, NOW + timedelta(days=1), "revoked"),
    ],
)
def test_a_token_is_active_until_it_expires_or_is_revoked(
    expires: datetime | None, revoked: datetime | None, state: str
) -> None:
    assert replace(TOKEN, expires_at=expires, revoked_at=revoked).state(NOW) == state


@every_case(
    ("seconds_ago", "is_due"),
    [(None, True), (60, True), (3600, True), (59.9, False), (0, False), (-90, False)],
)
def test_a_use_is_recorded_once_per_minute(seconds_ago: float | None, is_due: bool) -> None:
    last = None if seconds_ago is None else NOW - timedelta(seconds=seconds_ago)
    assert replace(TOKEN, last_used_at=last).should_record_use(NOW) is is_due


def test_the_caller_of_a_token_is_a_machine_with_its_grants() -> None:
    caller = TOKEN.caller()
    assert (caller.id, caller.name, caller.is_machine) == ("token:3", "nightly", True)
    reach = Reach(Scope.GROUP, frozenset({"NORD"}), None, "token:3")
    assert caller.reach(Permission.AUTOMATION, Action.WRITE) == reach
    assert caller.reach(Permission.AUTOMATION, Action.READ) == reach
    assert caller.reach(Permission.FICHES, Action.READ) == reach
    assert caller.reach(Permission.FICHES, Action.WRITE) is None
    assert caller.reach(Permission.AUDITS, Action.READ) is None


def test_the_caller_of_an_organisation_token_has_only_organisation_permissions() -> None:
    permission_names = (
        "org-jobs.write",
        "org-jobs.agents.read",
        "automation.write",
        "organisations.write",
        "*",
    )
    caller = replace(
        TOKEN, permissions=permission_names, scope=Scope.ALL, groupes=(), org_id="acme"
    ).caller()
    assert (caller.org_id, set(caller.grants)) == ("acme", ORGANISATION_PERMISSIONS)
    assert caller.reach(Permission.ORG_JOBS, Action.WRITE) == Reach(Scope.ALL, caller="token:3")
    assert TOKEN.caller().org_id is None


def test_the_token_document_has_everything_except_the_hash() -> None:
    shown = token_document(replace(TOKEN, revoked_at=NOW), NOW)
    assert shown == {
        "id": "3", "name": "nightly", "prefix": "apt_abcdef", "state": "revoked",
        "permissions": ["automation.write", "fiches.read"], "scope": "GROUP", "groupes": ["NORD"], "crmUserId": None,
        "orgId": None,
        "createdAt": "2026-05-04T10:00:00.000Z", "expiresAt": None, "lastUsedAt": None,
        "revokedAt": "2026-05-04T10:00:00.000Z",
    }  # fmt: skip
    assert TOKEN.token_hash not in repr(TOKEN)


BASES = [*Permission, "*", "all"]
SUFFIXES = ["", ".read", ".auth", ".write", ".run", ".rerun", ".fetch", ".use", ".test"]
permission_names = st.builds(str.__add__, st.sampled_from(BASES), st.sampled_from(SUFFIXES))


@every_case(
    ("permissions", "normalised"),
    [
        (["automation.write"], ("automation.write",)),
        (["fiches"], ("fiches.read",)),
        (["audits.run"], ("audits.write",)),
        (["audits.rerun", "audits.read"], ("audits.write",)),
        (["realtime.auth"], ("realtime.read",)),
        (
            ["transcriptions.fetch", "chat.use", "realtime.test"],
            ("transcriptions.write", "chat.write", "realtime.write"),
        ),
        (["admin.users"], ("admin.users.read",)),
        (["admin.permissions.write"], ("admin.permissions.write",)),
        ([" Audit-Configs.WRITE "], ("audit-configs.write",)),
        (["audits", "fiches"], ("fiches.read", "audits.read")),
        (["pricing"], ("pricing.read",)),
        (["pricing.write"], ("pricing.write",)),
        (["pricing.run"], ("pricing.write",)),
        (["pricing.runs"], ("pricing.runs.read",)),
        (["pricing.policies.write", "pricing.run"], ("pricing.write", "pricing.policies.write")),
        (["pricing.runs.write", "pricing.read"], ("pricing.read", "pricing.runs.write")),
        (["*"], ("*",)),
        (["all"], ("*",)),
        (["all.read"], ("*.read",)),
        (["*.write", "fiches"], ("*",)),
        (["*.read", "fiches.read", "audits.run"], ("*.read", "audits.write")),
    ],
)
def test_permissions_are_normalised(permissions: list[str], normalised: tuple[str, ...]) -> None:
    assert normalise_permissions(permissions) == normalised


@every_case(
    "word",
    [
        "",
        " ",
        "nope",
        "fiches.delete",
        "fiches.",
        ".read",
        "read",
        "fiches.read.read",
        "admin",
        "admin.read",
        "**",
        "pricing.runs.run.read",
    ],
)
def test_unknown_permissions_are_rejected_and_grant_nothing(word: str) -> None:
    assert permission_error(word)
    assert normalise_permissions([word]) == ()
    assert grants_of([word], Scope.ALL) == {}


def test_the_error_for_an_unknown_permission_lists_the_known_ones() -> None:
    assert permission_error("nope") == (
        f"is not a permission: use {', '.join(Permission)}, alone or with .read or .write, or * for everything"
    )
    assert permission_error(" ") == "must not be empty"


@given(st.lists(permission_names, min_size=1), st.sampled_from(Scope))
def test_normalised_permissions_are_stable_and_grant_the_same(
    permissions: list[str], scope: Scope
) -> None:
    normalised = normalise_permissions(permissions)
    assert normalise_permissions(normalised) == normalised
    assert grants_of(normalised, scope) == grants_of(permissions, scope)
    assert not any(map(permission_error, permissions))


@given(st.lists(permission_names, min_size=1), st.sampled_from(Scope))
def test_write_implies_read_and_no_grant_exceeds_the_scope(
    permissions: list[str], scope: Scope
) -> None:
    for grant in grants_of(permissions, scope).values():
        assert grant in {Grant(scope, None), Grant(scope, scope)}


@given(st.lists(permission_names, min_size=1))
def test_a_permission_grants_nothing_else(permissions: list[str]) -> None:
    requested = {word.removesuffix(suffix) for word in permissions for suffix in SUFFIXES}
    granted = set(grants_of(permissions, Scope.ALL))
    assert granted == (set(Permission) if requested & {"*", "all"} else requested & set(Permission))


def test_the_wildcard_grants_every_permission_for_read_and_write() -> None:
    grants = grants_of(["*"], Scope.GROUP)
    assert set(grants) == set(Permission)
    assert all(grant.of(action) is Scope.GROUP for grant in grants.values() for action in Action)


LEAST = {"name": "nightly", "permissions": ["fiches"], "scope": "ALL"}


def test_a_minimal_token_request_is_accepted() -> None:
    request = parse_token_request(LEAST)
    assert (request.name, request.permissions, request.scope) == (
        "nightly",
        ("fiches.read",),
        Scope.ALL,
    )
    assert (request.groupes, request.crm_user_id, request.expires_in_days) == ((), None, None)
    assert request.org_id is None


@every_case(
    "given",
    [
        {"name": "x" * 200},
        {"permissions": ["fiches"] * 100},
        {"scope": "GROUP", "groupes": ["x" * 200, *map(str, range(499))]},
        {"scope": "SELF", "crmUserId": "x" * 100},
        {"orgId": "x" * 100, "permissions": ["org-jobs"]},
        {"expiresInDays": 1},
        {"expiresInDays": 3650},
    ],
)
def test_the_largest_values_are_accepted(given: dict[str, object]) -> None:
    assert parse_token_request(LEAST | given)


@every_case(
    ("given", "scope", "groupes", "crm_user"),
    [
        (
            {"scope": "group", "groupes": [" NORD ", "SUD", "NORD"]},
            Scope.GROUP,
            ("NORD", "SUD"),
            None,
        ),
        ({"scope": "SELF", "crmUserId": " 77 "}, Scope.SELF, (), "77"),
        ({"scope": " All ", "groupes": [], "crmUserId": None}, Scope.ALL, (), None),
    ],
)
def test_each_scope_is_parsed_with_its_groupes_or_user(
    given: dict[str, object], scope: Scope, groupes: tuple[str, ...], crm_user: str | None
) -> None:
    request = parse_token_request(LEAST | given)
    assert (request.scope, request.groupes, request.crm_user_id) == (scope, groupes, crm_user)


@every_case(
    "permission_names",
    [["org-jobs"], ["org-jobs.write", "org-jobs.agents.write"], ["org-jobs.agents"]],
)
def test_a_token_may_belong_to_an_organisation(permission_names: list[str]) -> None:
    request = parse_token_request(LEAST | {"orgId": " acme ", "permissions": permission_names})
    assert (request.org_id, request.scope, len(request.permissions)) == (
        "acme",
        Scope.ALL,
        len(permission_names),
    )


@every_case(
    ("given", "field", "why"),
    [
        ({"name": " "}, "name", "must not be empty"),
        ({"name": "x" * 201}, "name", "must have at most 200 characters"),
        ({"orgId": "x" * 101}, "orgId", "must have at most 100 characters"),
        (
            {"scope": "GROUP", "groupes": ["x" * 201]},
            "groupes.0",
            "must have at most 200 characters",
        ),
        ({"scope": "GROUP", "groupes": ["x"] * 501}, "groupes", "must have at most 500 entries"),
        (
            {"scope": "SELF", "crmUserId": "x" * 101},
            "crmUserId",
            "must have at most 100 characters",
        ),
        ({"name": "a\0"}, "name", "must not hold the character NUL"),
        ({"name": None}, "name", "must be a text"),
        ({"permissions": []}, "permissions", "must not be empty"),
        ({"permissions": "fiches"}, "permissions", "must be a list"),
        ({"permissions": ["fiches", "nope"]}, "permissions.1", "is not a permission"),
        ({"permissions": ["fiches"] * 101}, "permissions", "must have at most 100 entries"),
        ({"scope": "EVERYTHING"}, "scope", "must be ALL, GROUP or SELF"),
        ({"scope": 3}, "scope", "must be ALL, GROUP or SELF"),
        ({"scope": None}, "scope", "must be ALL, GROUP or SELF"),
        ({"scope": "GROUP"}, "groupes", "is needed by the scope GROUP"),
        ({"scope": "GROUP", "groupes": [" "]}, "groupes.0", "must not be empty"),
        ({"groupes": ["NORD"]}, "groupes", "goes with the scope GROUP only"),
        ({"scope": "SELF"}, "crmUserId", "is needed by the scope SELF"),
        ({"scope": "SELF", "crmUserId": ""}, "crmUserId", "must not be empty"),
        ({"crmUserId": "77"}, "crmUserId", "goes with the scope SELF only"),
        ({"expiresInDays": 0}, "expiresInDays", "must be at least 1"),
        ({"expiresInDays": 3651}, "expiresInDays", "must be at most 3650"),
        ({"expiresInDays": True}, "expiresInDays", "must be a whole number"),
        ({"expiresInDays": "30"}, "expiresInDays", "must be a whole number"),
        ({"expires": 3}, "expires", "is not a known field"),
        (
            {"orgId": "acme"},
            "permissions",
            "must be enrichment, org-jobs or org-jobs.agents for a token of an organisation, not fiches.read",
        ),
        ({"orgId": "acme", "permissions": ["*"]}, "permissions", "must be enrichment, org-jobs or"),
        (
            {"orgId": "acme", "permissions": ["*.read"]},
            "permissions",
            "must be enrichment, org-jobs or",
        ),
        (
            {"orgId": "acme", "permissions": ["org-jobs", "organisations"]},
            "permissions",
            "must be enrichment, org-jobs or",
        ),
        (
            {"orgId": "acme", "permissions": ["org-jobs"], "scope": "SELF", "crmUserId": "7"},
            "scope",
            "must be ALL",
        ),
        (
            {"orgId": "acme", "permissions": ["org-jobs"], "scope": "GROUP", "groupes": ["N"]},
            "scope",
            "must be ALL",
        ),
        ({"orgId": " "}, "orgId", "must not be empty"),
        ({"orgId": 7}, "orgId", "must be a text"),
    ],
)
def test_the_error_names_the_invalid_field(given: dict[str, object], field: str, why: str) -> None:
    with pytest.raises(InvalidInputError, match="Invalid token") as refused:
        parse_token_request(LEAST | given)
    [(requested, messages)] = refused.value.fields
    assert requested == field
    assert messages.startswith(why)


def test_all_invalid_fields_are_reported_together() -> None:
    with pytest.raises(InvalidInputError) as refused:
        parse_token_request({"permissions": ["x"], "scope": "SELF", "groupes": ["NORD"]})
    assert {field for field, _ in refused.value.fields} == {
        "name",
        "permissions.0",
        "groupes",
        "crmUserId",
    }


def caller_with(
    permission_names: str, scope: Scope, *groupes: str, crm_user: str | None = None
) -> Caller:
    return Caller(
        "user:1",
        grants_of(permission_names.split(), scope),
        groupes=frozenset(groupes),
        crm_user_id=crm_user,
    )


ALL = caller_with("fiches.write audits.read", Scope.ALL)
NORTH = caller_with("fiches.write", Scope.GROUP, "NORD", "EST")
ONE = caller_with("fiches.write", Scope.SELF, crm_user="77")
IN_NORTH = {"groupes": ["NORD"]}
OF_77 = {"crmUserId": "77"}


@every_case(
    ("caller", "permission_names", "scope", "about", "excess_fields"),
    [
        (ALL, "fiches.write audits", "ALL", {}, []),
        (ALL, "fiches.read", "GROUP", IN_NORTH, []),
        (ALL, "fiches.read", "SELF", OF_77, []),
        (ALL, "audits.write", "ALL", {}, ["permissions"]),
        (ALL, "automation", "ALL", {}, ["permissions"]),
        (ALL, "*.read", "ALL", {}, ["permissions"]),
        (NORTH, "fiches.write", "GROUP", IN_NORTH, []),
        (NORTH, "fiches", "ALL", {}, ["scope"]),
        (NORTH, "fiches", "GROUP", {"groupes": ["NORD", "SUD"]}, ["scope"]),
        (NORTH, "fiches", "SELF", OF_77, ["scope"]),
        (NORTH, "audits fiches", "ALL", {}, ["permissions", "scope"]),
        (ONE, "fiches", "SELF", OF_77, []),
        (ONE, "fiches", "SELF", {"crmUserId": "78"}, ["scope"]),
        (ONE, "fiches", "GROUP", IN_NORTH, ["scope"]),
        (caller_with("fiches", Scope.SELF), "fiches", "SELF", OF_77, ["scope"]),
    ],
)
def test_grants_that_exceed_those_of_the_issuer_are_reported(
    caller: Caller,
    permission_names: str,
    scope: str,
    about: dict[str, object],
    excess_fields: list[str],
) -> None:
    request = parse_token_request(
        {"name": "x", "permissions": permission_names.split(), "scope": scope, **about}
    )
    assert [field for field, _ in excess_grants(request, caller)] == excess_fields


JOBS = {"name": "x", "permissions": ["org-jobs.write"], "scope": "ALL"}


@every_case(
    ("own", "org_id", "requested_org", "excess_fields"),
    [
        ("org-jobs.write", "acme", "acme", []),
        ("org-jobs.write", "acme", "globex", ["orgId"]),
        ("org-jobs.write", "acme", None, ["orgId"]),
        ("org-jobs.read", "acme", "acme", ["permissions"]),
        ("org-jobs.write", None, "acme", []),
        ("org-jobs.write", None, None, []),
        ("automation.write", None, "acme", ["permissions"]),
    ],
)
def test_an_organisation_caller_cannot_issue_grants_beyond_the_organisation(
    own: str, org_id: str | None, requested_org: str | None, excess_fields: list[str]
) -> None:
    caller = Caller("token:1", grants_of([own], Scope.ALL), org_id=org_id)
    assert [
        field
        for field, _ in excess_grants(parse_token_request(JOBS | {"orgId": requested_org}), caller)
    ] == excess_fields


@every_case(
    "caller",
    [caller_with("org-jobs.write", Scope.GROUP, "N"), caller_with("org-jobs.write", Scope.SELF)],
)
def test_a_caller_without_full_scope_cannot_issue_organisation_tokens(caller: Caller) -> None:
    assert [
        field for field, _ in excess_grants(parse_token_request(JOBS | {"orgId": "acme"}), caller)
    ] == ["scope"]


def test_a_caller_with_all_grants_can_issue_any_token() -> None:
    administrator = Caller("machine:environment", whole_grants())
    assert (
        excess_grants(
            parse_token_request({"name": "x", "permissions": ["*"], "scope": "ALL"}), administrator
        )
        == ()
    )


def test_the_error_for_excess_grants_names_the_permissions() -> None:
    request = parse_token_request({"name": "x", "permissions": ["audits.write"], "scope": "ALL"})
    assert excess_grants(request, ALL) == (
        ("permissions", "you do not have yourself: audits.write"),
    )
    request = parse_token_request(
        {"name": "x", "permissions": ["audits", "fiches.write"], "scope": "ALL"}
    )
    assert excess_grants(request, NORTH) == (
        ("permissions", "you do not have yourself: audits.read"),
        ("scope", "exceeds your own scope for: fiches.read, fiches.write"),
    )
    assert excess_grants(request, replace(NORTH, org_id="acme")) == (
        ("orgId", "must be 'acme', the organisation that you belong to"),
    )
