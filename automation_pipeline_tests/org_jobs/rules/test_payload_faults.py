"""What no payload may hold: a secret under its name, however deep, and what no database keeps."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.core.masking import is_sensitive
from automation_pipeline.org_jobs.models.payloads import DEEPEST, PLAIN_SECRET, payload_faults
from automation_pipeline_tests.tables import every_case

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
    """A text by its name, by its look, or by the name beside it."""
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
def test_a_text_that_is_known_for_a_secret_passes_nowhere(
    value: Any, ways: list[bool], beside: Any
) -> None:
    for is_listed in ways:
        value = [beside, value] if is_listed else {"beside": beside, "inside": value}
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
def test_what_only_resembles_one_passes(body: dict[str, Any]) -> None:
    assert payload_faults({"body": body}) == []


@st.composite
def payloads_with_a_secret(draw: st.DrawFn) -> dict[str, Any]:
    """Plain values all around, and a secret under a sensitive name somewhere in it."""
    value: Any = {draw(st.sampled_from(SENSITIVE)): draw(SECRETS)}
    for _ in range(draw(st.integers(0, 4))):
        beside = draw(PLAIN)
        value = [beside, value] if draw(st.booleans()) else {"beside": beside, "inside": value}
    return {"first": draw(PLAIN), "body": value}


@given(payloads_with_a_secret())
def test_no_payload_with_a_plain_secret_passes_and_no_fault_shows_it(
    payload: dict[str, Any],
) -> None:
    faults = payload_faults(payload)
    assert PLAIN_SECRET in {why for _, why in faults}
    assert SECRET not in str(faults)
    assert all(any(is_sensitive(step) for step in where.split(".")) for where, _ in faults)


@given(st.dictionaries(st.sampled_from("xyz"), PLAIN))
def test_a_payload_without_one_passes(payload: dict[str, Any]) -> None:
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
def test_references_counts_and_what_is_empty_are_no_secrets(payload: dict[str, Any]) -> None:
    assert payload_faults(payload) == []


def test_the_sentence_says_where_it_is_and_how_to_refer_to_a_secret() -> None:
    [(where, why)] = payload_faults({"body": {"logins": [{"password": SECRET}]}})
    assert where == "body.logins.0.password"
    assert why == (
        'must not be written here: refer to it as {"secretRef": "NAME"}, and set ORG_SECRET__<ORGANISATION>__<NAME> '
        "where the job is done"
    )


@every_case(
    "reference", [{"secretRef": "A__B"}, {"secretRef": "A", "or": SECRET}, {"secretRef": [SECRET]}]
)
def test_half_a_reference_is_none(reference: dict[str, Any]) -> None:
    [(where, why)] = payload_faults({"a": reference})
    assert (where, why.startswith("must be just ")) == ("a", True)


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
def test_what_no_database_keeps_is_refused(value: object, why: str) -> None:
    assert [fault for _, fault in payload_faults({"body": value})] == [why]


def test_what_is_nested_without_end_is_refused_and_not_looked_through() -> None:
    value: Any = "end"
    for _ in range(100_000):
        value = [value]
    [(where, why)] = payload_faults({"body": value})
    assert (where.count("."), why) == (DEEPEST, "must not be nested more than 20 deep")
    while isinstance(value, list):  # a list so deep would be too much for whoever clears it up
        value = value.pop()
