"""References to secrets in payloads, and the refusal of plain secrets."""

import json
from base64 import b64encode
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.masking import is_sensitive
from automation_pipeline.org_jobs.models.job_types import job_types
from automation_pipeline.org_jobs.models.payloads import (
    DEEPEST,
    PLAIN_SECRET,
    is_scheme,
    is_secret_when_sent,
    looks_secret,
    named_by_sibling,
    names_secret,
    payload_faults,
    reference_in,
    secrets_of,
    variable_of,
    with_secrets,
)
from automation_pipeline_tests.cases import every_case

ORG_IDS = st.from_regex(r"[a-z0-9](-?[a-z0-9]){0,8}", fullmatch=True)
REFERENCE_NAMES = st.from_regex(r"[A-Z](_?[A-Z0-9]){0,8}_?", fullmatch=True)
BODY = {"a": [{"secretRef": "ONE"}, {"b": {"secretRef": "TWO"}}], "c": "plain"}


@every_case("name", ["A", "RCON_PASSWORD", "KEY2", "A_", "A" * 64])
def test_valid_secret_references(name: str) -> None:
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
def test_invalid_secret_references(value: object) -> None:
    assert reference_in(value) is None


def test_references_are_replaced_by_secrets() -> None:
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
def test_the_error_names_the_variable_of_a_missing_secret(
    environment: dict[str, str],
) -> None:
    with pytest.raises(
        InvalidInputError, match=r"set the environment variable ORG_SECRET__ACME__ONE\.$"
    ):
        secrets_of({"secretRef": "ONE"}, "acme", environment)


@given(ORG_IDS, REFERENCE_NAMES, ORG_IDS, REFERENCE_NAMES)
def test_each_secret_has_a_unique_variable(
    org_id: str, name: str, other_org_id: str, other_name: str
) -> None:
    is_same = variable_of(org_id, name) == variable_of(other_org_id, other_name)
    assert is_same == ((org_id, name) == (other_org_id, other_name))


USERS = "dXNlcjpwYXNz"  # user:pass


@every_case(
    "name",
    [
        "password",
        "webhookKey",
        "webhook_key",
        "sig",
        "x-sig",
        "subscriptionKey",
        "Ocp-Apim-Subscription-Key",
        "userKey",
        "userkey",
        "session",
        "routing_key",
        "apiKey",
        "APIKey",
        "clientSecret",
        "sharedKey",
        "licenseKey",
    ],
)
def test_sensitive_field_names_are_recognised(name: str) -> None:
    assert names_secret(name)
    assert is_secret_when_sent(name)


@every_case(
    "name",
    [
        "key",
        "keys",
        "monkey",
        "keyboard",
        "issueKey",
        "sortKey",
        "primary_key",
        "publicKey",
        "sessions",
        "sessionName",
        "signal",
        "design",
        "user",
        "token_type",
        "email",
        "hockey",
        "auth",
    ],
)
def test_plain_field_names_are_not_sensitive(name: str) -> None:
    assert not names_secret(name)


@every_case(
    "name", ["key", "X-Key", "xAuth", "functionsKey", "sid", "sessionId", "primaryKey", "email"]
)
def test_more_names_are_sensitive_in_headers_and_queries(name: str) -> None:
    assert is_secret_when_sent(name)


@every_case("name", ["page", "sortKey", "cache-key", "Accept", "X-Request-Id", "design"])
def test_some_names_are_not_sensitive_in_headers_and_queries(name: str) -> None:
    assert not is_secret_when_sent(name)


@every_case(
    "text",
    [
        "Bearer hunter2hunter2",
        "bearer  abcdef",
        f"Basic {USERS}",
        "ApiKey 12345678",
        "api-key abc12345",
        "Token abcdef123",
        "GenieKey 1f2e3d4c-5b6a",
        "see apt_0123456789abcdef",
        "eyJhbGciOiJIUzI1NiJ9.e30.abc",
        "sk-0123456789abcdef",
    ],
)
def test_a_credential_is_recognised_by_its_format(text: str) -> None:
    assert looks_secret(text)


@every_case(
    "text",
    [
        "",
        "Basic maintenance",
        "Basic maintenance tonight",
        "Basic",
        "Bearer of good news",
        "Token expired",
        "The key",
        "Token was refused 12 times",
        "key facts",
        "ApiKey missing",
        "restart at 10:30",
        "basic-auth",
        "Key 12",
    ],
)
def test_sentence_is_not_a_credential(text: str) -> None:
    assert not looks_secret(text)


@given(
    st.text(st.characters(codec="ascii", exclude_characters=":"), max_size=8), st.text(max_size=12)
)
def test_basic_credentials_are_recognised(user: str, password: str) -> None:
    encoded = b64encode(f"{user}:{password}xx".encode()).decode()
    assert looks_secret(f"Basic {encoded}")
    assert looks_secret(f"basic {encoded.rstrip('=')}")


@every_case(
    "text", ["Basic x", "token x", "ApiKey x", "api-key x", "GenieKey x", "Negotiate x", "HMAC x"]
)
def test_every_value_after_a_scheme_is_a_credential_in_a_header(text: str) -> None:
    assert is_scheme(text)
    assert not is_scheme(text.replace(" ", "-"))


@every_case(
    ("document", "found"),
    [
        ({"name": "Authorization", "value": "x"}, ("value", "Authorization")),
        ({"Key": "webhookKey", "Value": "x"}, ("Value", "webhookKey")),
        ({"header": "X-Api-Key", "val": "x"}, ("val", "X-Api-Key")),
        ({"name": "Username", "value": "bob"}, None),
        ({"name": "Colour", "value": "red"}, None),
        ({"key": "value"}, None),
        ({"name": "password"}, None),
        ({"name": 7, "value": 8}, None),
        ({}, None),
    ],
)
def test_a_secret_may_be_named_by_a_sibling_field(
    document: dict[str, object], found: tuple[str, str] | None
) -> None:
    assert named_by_sibling(document) == found


def test_fields_of_built_in_payloads_are_not_sensitive_except_passwords() -> None:
    fields = {
        field
        for known in job_types()
        for field in cast("dict[str, object]", (known.payload_schema or {}).get("properties", {}))
    }
    assert {field for field in fields if names_secret(field)} <= {"password"}


SECRET = "hunter2hunter2"
SENSITIVE = [
    "password",
    "Authorization",
    "Cookie",
    "X-Api-Key",
    "rconPassword",
    "client_secret",
    "token",
    "privateKey",
]
NAMES = [*SENSITIVE, "webhookKey", "sig", "subscriptionKey", "userKey", "session"]
CREDENTIALS = [
    "Bearer hunter2hunter2",
    "Basic aHVudGVyMjpodW50ZXIy",
    "ApiKey hunter2hunter2",
    "Token hunter2hunter2",
]
LEAVES = st.none() | st.booleans() | st.integers(-9, 9) | st.text("abc", max_size=3)
PLAIN = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=2)
    ),
)
SECRETS = st.recursive(
    st.sampled_from([SECRET, 4711_0815, 1.25]),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=2)
        | st.dictionaries(st.sampled_from("xyz"), inner, min_size=1)
    ),
    max_leaves=3,
)


@st.composite
def hidden_secrets(draw: st.DrawFn) -> dict[str, Any]:
    """A secret recognisable by its field name, its format or a sibling field."""
    name, text = draw(st.sampled_from(NAMES)), SECRET
    fields = draw(
        st.sampled_from([("name", "value"), ("key", "value"), ("header", "val"), ("Name", "Value")])
    )
    return draw(
        st.sampled_from(
            [
                {name: text},
                {"x": draw(st.sampled_from(CREDENTIALS))},
                dict(zip(fields, (name, text), strict=True)),
            ]
        )
    )


@given(hidden_secrets(), st.lists(st.booleans(), max_size=4), PLAIN)
def test_a_plain_secret_is_refused_at_any_depth(value: Any, ways: list[bool], sibling: Any) -> None:
    for is_listed in ways:
        value = [sibling, value] if is_listed else {"sibling": sibling, "inside": value}
    [(where, why)] = payload_faults({"body": value})
    assert (where.startswith("body."), why) == (True, PLAIN_SECRET)


@every_case(
    "body",
    [
        {"key": "value"},
        {"name": "Authorization", "value": {"secretRef": "TOKEN"}},
        {"name": "Authorization", "value": ""},
        {"fields": [{"name": "Username", "value": "bob"}, {"name": "Tokens left", "value": 12}]},
        {
            "content": "Basic maintenance tonight",
            "issueKey": "GAME-7",
            "session": {"begins": "20:00"},
        },
    ],
)
def test_values_that_resemble_secrets_are_accepted(body: dict[str, Any]) -> None:
    assert payload_faults({"body": body}) == []


@st.composite
def payloads_with_a_secret(draw: st.DrawFn) -> dict[str, Any]:
    """A payload of plain values with one secret under a sensitive name at any depth."""
    value: Any = {draw(st.sampled_from(SENSITIVE)): draw(SECRETS)}
    for _ in range(draw(st.integers(0, 4))):
        sibling = draw(PLAIN)
        value = [sibling, value] if draw(st.booleans()) else {"sibling": sibling, "inside": value}
    return {"first": draw(PLAIN), "body": value}


@given(payloads_with_a_secret())
def test_a_plain_secret_is_refused_and_not_quoted_in_the_error(
    payload: dict[str, Any],
) -> None:
    faults = payload_faults(payload)
    assert PLAIN_SECRET in {why for _, why in faults}
    assert SECRET not in str(faults)
    assert all(any(is_sensitive(step) for step in where.split(".")) for where, _ in faults)


@given(st.dictionaries(st.sampled_from("xyz"), PLAIN))
def test_a_payload_without_secrets_is_accepted(payload: dict[str, Any]) -> None:
    assert payload_faults(payload) == []


@every_case(
    "payload",
    [
        {"password": {"secretRef": "RCON"}},
        {"headers": {"Authorization": {"secretRef": "A"}, "Accept": "text/plain"}},
        {"passwords": [{"secretRef": "A"}, {"secretRef": "B"}]},
        {"password": None, "hasToken": True, "secret": ""},
        {"maxTokens": 4096, "tokens": 12},
    ],
)
def test_references_counts_and_empty_values_are_accepted(payload: dict[str, Any]) -> None:
    assert payload_faults(payload) == []


def test_the_error_names_the_path_and_explains_references() -> None:
    [(where, why)] = payload_faults({"body": {"logins": [{"password": SECRET}]}})
    assert where == "body.logins.0.password"
    assert why == (
        'must not be in the payload: refer to it as {"secretRef": "NAME"}, and set ORG_SECRET__<ORGANISATION>__<NAME> '
        "where the job runs"
    )


@every_case(
    "reference", [{"secretRef": "A__B"}, {"secretRef": "A", "or": SECRET}, {"secretRef": [SECRET]}]
)
def test_a_malformed_reference_is_refused(reference: dict[str, Any]) -> None:
    [(where, why)] = payload_faults({"a": reference})
    assert (where, why.startswith("must be only ")) == ("a", True)


@every_case(
    ("value", "why"),
    [
        ("a\0b", "must not hold the character NUL"),
        ({"a\0b": 1}, "must not hold the character NUL"),
        (json.loads('["\\ud800"]'), "must not hold half a character"),
        (float("nan"), "must be a finite number"),
        (float("inf"), "must be a finite number"),
        ({"x" * 201: 1}, "has a name of more than 200 characters"),
    ],
)
def test_values_that_databases_cannot_store_are_refused(value: object, why: str) -> None:
    assert [fault for _, fault in payload_faults({"body": value})] == [why]


def test_a_deeply_nested_value_is_refused_before_it_is_searched() -> None:
    value: Any = "end"
    for _ in range(100_000):
        value = [value]
    [(where, why)] = payload_faults({"body": value})
    assert (where.count("."), why) == (DEEPEST, "must not be nested more than 20 deep")
    # Unnest the list, because freeing it recursively could overflow the stack.
    while isinstance(value, list):
        value = value.pop()


def test_every_value_inside_a_sensitive_field_is_a_secret() -> None:
    faults = payload_faults({"password": {"x": [4711]}, "plain": {"x": [4711]}})
    assert [why for _, why in faults] == [PLAIN_SECRET]
