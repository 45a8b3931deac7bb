"""Whoever makes a token hands out no more than they have."""

from automation_pipeline.access.models import grants_of, parse_token_request
from automation_pipeline.access.rules import excess_grants
from automation_pipeline.core.access import Caller, Scope, whole_grants
from automation_pipeline_tests.tables import every_case


def giver(words: str, scope: Scope, *groupes: str, crm_user: str | None = None) -> Caller:
    return Caller(
        "user:1", grants_of(words.split(), scope), groupes=frozenset(groupes), crm_user_id=crm_user
    )


ALL = giver("fiches.write audits.read", Scope.ALL)
NORTH = giver("fiches.write", Scope.GROUP, "NORD", "EST")
ONE = giver("fiches.write", Scope.SELF, crm_user="77")
IN_NORTH = {"groupes": ["NORD"]}
OF_77 = {"crmUserId": "77"}


@every_case(
    ("who", "words", "scope", "about", "at_fault"),
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
        (giver("fiches", Scope.SELF), "fiches", "SELF", OF_77, ["scope"]),
    ],
)
def test_what_is_beyond_the_giver_is_named(
    who: Caller, words: str, scope: str, about: dict[str, object], at_fault: list[str]
) -> None:
    wish = parse_token_request({"name": "x", "permissions": words.split(), "scope": scope, **about})
    assert [field for field, _ in excess_grants(wish, who)] == at_fault


JOBS = {"name": "x", "permissions": ["org-jobs.write"], "scope": "ALL"}


@every_case(
    ("own", "org_id", "wanted", "at_fault"),
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
def test_nobody_of_an_organisation_hands_out_what_is_beyond_it(
    own: str, org_id: str | None, wanted: str | None, at_fault: list[str]
) -> None:
    who = Caller("token:1", grants_of([own], Scope.ALL), org_id=org_id)
    assert [
        field for field, _ in excess_grants(parse_token_request(JOBS | {"orgId": wanted}), who)
    ] == at_fault


@every_case("who", [giver("org-jobs.write", Scope.GROUP, "N"), giver("org-jobs.write", Scope.SELF)])
def test_who_reaches_no_organisation_hands_none_out(who: Caller) -> None:
    assert [
        field for field, _ in excess_grants(parse_token_request(JOBS | {"orgId": "acme"}), who)
    ] == ["scope"]


def test_who_may_do_everything_may_hand_out_everything() -> None:
    everybody = Caller("machine:environment", whole_grants())
    assert (
        excess_grants(
            parse_token_request({"name": "x", "permissions": ["*"], "scope": "ALL"}), everybody
        )
        == ()
    )


def test_the_complaint_names_the_permissions() -> None:
    wish = parse_token_request({"name": "x", "permissions": ["audits.write"], "scope": "ALL"})
    assert excess_grants(wish, ALL) == (("permissions", "you may not do yourself: audits.write"),)
