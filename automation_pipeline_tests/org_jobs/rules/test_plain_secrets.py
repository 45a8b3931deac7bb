"""What is taken for a secret in plain text, and what is not."""

from base64 import b64encode
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.org_jobs.models.job_types import job_types
from automation_pipeline.org_jobs.models.payloads import (
    is_scheme,
    is_secret_when_sent,
    looks_secret,
    named_by_sibling,
    names_secret,
)
from automation_pipeline_tests.tables import every_case

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
def test_a_secret_is_known_by_its_name(name: str) -> None:
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
def test_other_names_are_none(name: str) -> None:
    assert not names_secret(name)


@every_case(
    "name", ["key", "X-Key", "xAuth", "functionsKey", "sid", "sessionId", "primaryKey", "email"]
)
def test_in_a_header_or_a_query_more_names_are(name: str) -> None:
    assert is_secret_when_sent(name)


@every_case("name", ["page", "sortKey", "cache-key", "Accept", "X-Request-Id", "design"])
def test_in_a_header_or_a_query_too_some_names_are_none(name: str) -> None:
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
def test_a_credential_is_known_by_its_look(text: str) -> None:
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
def test_a_sentence_is_none(text: str) -> None:
    assert not looks_secret(text)


@given(
    st.text(st.characters(codec="ascii", exclude_characters=":"), max_size=8), st.text(max_size=12)
)
def test_a_user_and_a_password_are_known_whatever_they_are(user: str, password: str) -> None:
    encoded = b64encode(f"{user}:{password}xx".encode()).decode()
    assert looks_secret(f"Basic {encoded}")
    assert looks_secret(f"basic {encoded.rstrip('=')}")


@every_case(
    "text", ["Basic x", "token x", "ApiKey x", "api-key x", "GenieKey x", "Negotiate x", "HMAC x"]
)
def test_in_a_header_whatever_follows_a_scheme_is_one(text: str) -> None:
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
def test_a_name_may_stand_beside_it(
    document: dict[str, object], found: tuple[str, str] | None
) -> None:
    assert named_by_sibling(document) == found


def test_no_field_of_our_own_payloads_is_taken_for_one() -> None:
    fields = {
        field
        for known in job_types()
        for field in cast("dict[str, object]", (known.payload_schema or {}).get("properties", {}))
    }
    assert {field for field in fields if names_secret(field)} <= {"password"}
