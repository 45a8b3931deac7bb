"""References to secrets: which are ones, where their values are, and that no organisation names
those of another."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.org_jobs.models.payloads import (
    reference_in,
    secrets_of,
    variable_of,
    with_secrets,
)
from automation_pipeline_tests.tables import every_case

ORG_IDS = st.from_regex(r"[a-z0-9](-?[a-z0-9]){0,8}", fullmatch=True)
NAMES = st.from_regex(r"[A-Z](_?[A-Z0-9]){0,8}_?", fullmatch=True)
BODY = {"a": [{"secretRef": "ONE"}, {"b": {"secretRef": "TWO"}}], "c": "plain"}


@every_case("name", ["A", "RCON_PASSWORD", "KEY2", "A_", "A" * 64])
def test_a_name_of_capitals_digits_and_single_underscores_is_a_reference(name: str) -> None:
    assert reference_in({"secretRef": name}) == name


@every_case(
    "value",
    [
        None,
        "ONE",
        {},
        {"secretRef": None},
        {"secretRef": ""},
        {"secretRef": "one"},
        {"secretRef": "1A"},
        {"secretRef": "_A"},
        {"secretRef": "A__B"},
        {"secretRef": "A-B"},
        {"secretRef": "A\n"},
        {"secretRef": "A" * 65},
        {"secretRef": "ONE", "more": 1},
        {"secretref": "ONE"},
    ],
)
def test_nothing_else_is_one(value: object) -> None:
    assert reference_in(value) is None


def test_secrets_are_looked_up_and_put_in_the_place_of_their_references() -> None:
    environment = {
        "ORG_SECRET__ACME_EU__ONE": "1st",
        "ORG_SECRET__ACME_EU__TWO": "2nd",
        "ONE": "wrong",
    }
    secrets = secrets_of(BODY, "acme-eu", environment)
    assert with_secrets(BODY, secrets) == {"a": ["1st", {"b": "2nd"}], "c": "plain"}
    assert BODY["a"][0] == {"secretRef": "ONE"}


@every_case(
    "environment", [{}, {"ORG_SECRET__ACME__ONE": ""}, {"ORG_SECRET__GLOBEX__ONE": "theirs"}]
)
def test_a_secret_that_the_organisation_does_not_have_is_named_by_its_variable(
    environment: dict[str, str],
) -> None:
    with pytest.raises(
        InvalidInputError, match=r"set the environment variable ORG_SECRET__ACME__ONE\.$"
    ):
        secrets_of({"secretRef": "ONE"}, "acme", environment)


@given(ORG_IDS, NAMES, ORG_IDS, NAMES)
def test_no_variable_is_of_two_secrets(
    org_id: str, name: str, other_org_id: str, other_name: str
) -> None:
    is_same = variable_of(org_id, name) == variable_of(other_org_id, other_name)
    assert is_same == ((org_id, name) == (other_org_id, other_name))
