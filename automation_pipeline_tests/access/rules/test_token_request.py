"""What somebody may ask a token for, and how what cannot be is refused."""

import pytest

from automation_pipeline.access.models import parse_token_request
from automation_pipeline.core.access import Scope
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline_tests.tables import every_case

LEAST = {"name": "nightly", "permissions": ["fiches"], "scope": "ALL"}


def test_a_wish_needs_little() -> None:
    wish = parse_token_request(LEAST)
    assert (wish.name, wish.permissions, wish.scope) == ("nightly", ("fiches.read",), Scope.ALL)
    assert (wish.groupes, wish.crm_user_id, wish.expires_in_days) == ((), None, None)


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
def test_each_scope_says_whose_fiches(
    given: dict[str, object], scope: Scope, groupes: tuple[str, ...], crm_user: str | None
) -> None:
    wish = parse_token_request(LEAST | given)
    assert (wish.scope, wish.groupes, wish.crm_user_id) == (scope, groupes, crm_user)


@every_case(
    "words", [["org-jobs"], ["org-jobs.write", "org-jobs.agents.write"], ["org-jobs.agents"]]
)
def test_a_token_may_belong_to_an_organisation(words: list[str]) -> None:
    wish = parse_token_request(LEAST | {"orgId": " acme ", "permissions": words})
    assert (wish.org_id, wish.scope, len(wish.permissions)) == ("acme", Scope.ALL, len(words))


@every_case(
    ("given", "field", "why"),
    [
        ({"name": " "}, "name", "must not be empty"),
        ({"name": "x" * 201}, "name", "must have at most 200 characters"),
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
            "of a token of an organisation are enrichment, org-jobs and org-jobs.agents, not fiches",
        ),
        ({"orgId": "acme", "permissions": ["*"]}, "permissions", "of a token of an organisation"),
        (
            {"orgId": "acme", "permissions": ["*.read"]},
            "permissions",
            "of a token of an organisation",
        ),
        (
            {"orgId": "acme", "permissions": ["org-jobs", "organisations"]},
            "permissions",
            "of a token of an",
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
def test_the_field_at_fault_is_named(given: dict[str, object], field: str, why: str) -> None:
    with pytest.raises(InvalidInputError, match="Invalid token") as refused:
        parse_token_request(LEAST | given)
    [(named, told)] = refused.value.fields
    assert named == field
    assert told.startswith(why)


def test_every_fault_is_named_at_once() -> None:
    with pytest.raises(InvalidInputError) as refused:
        parse_token_request({"permissions": ["x"], "scope": "SELF", "groupes": ["NORD"]})
    assert {field for field, _ in refused.value.fields} == {
        "name",
        "permissions.0",
        "groupes",
        "crmUserId",
    }
