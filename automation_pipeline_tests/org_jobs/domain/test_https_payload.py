"""The payload of a call over HTTPS: addresses, headers and bodies that are taken, and those that are refused."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.org_jobs.domain.https_payload import HttpsCallPayload
from automation_pipeline.org_jobs.domain.job_types import HTTPS_CALL, checked_payload, job_type
from automation_pipeline_tests.tables import every_case

SECRET = "hunter2hunter2"
URL = "https://hooks.example.com/jobs"
REFERENCE = {"secretRef": "HOOK"}


def checked(**payload: Any) -> dict[str, object]:
    return checked_payload(job_type(HTTPS_CALL), {"url": URL, **payload})


def faults(**payload: Any) -> tuple[tuple[str, str], ...]:
    with pytest.raises(InvalidInputError) as caught:
        checked(**payload)
    assert SECRET not in str(caught.value.fields)
    return caught.value.fields


def test_a_call_needs_only_its_address() -> None:
    assert checked() == {
        "url": URL,
        "method": "POST",
        "headers": {},
        "body": None,
        "expectStatus": [],
        "timeoutSeconds": 30,
    }


def test_references_may_stand_in_the_address_the_headers_and_the_body() -> None:
    given = {"url": REFERENCE, "headers": {"X-Api-Key": REFERENCE}, "body": {"password": REFERENCE, "of": ["x", None]}}
    stored = checked(**given)
    assert {name: stored[name] for name in given} == given
    assert checked(**stored) == stored


@every_case(
    "url",
    [
        f"https://user:{SECRET}@example.com/",
        f"https://{SECRET}@example.com/",
        f"https://example.com/?token={SECRET}",
        f"https://example.com/?a=1&api_key={SECRET}",
        f"https://example.com/?%74oken={SECRET}",
        f"https://example.com/?sig={SECRET}",
        f"https://example.com/?key={SECRET}",
        f"https://example.com/?subscriptionKey={SECRET}",
        f"https://example.com/?userKey={SECRET}",
        f"https://example.com/#access_token={SECRET}",
        "ftp://example.com/",
        "example.com",
        "https://",
        "https://exa mple.com/",
        "https://example.com:port/",
        "https://example.com/" + "x" * 2000,
        "",
        12,
    ],
)
def test_an_address_that_is_none_or_holds_a_secret_is_refused(url: object) -> None:
    assert [where for where, _ in faults(url=url)] == ["payload.url"]


@every_case("url", ["https://example.com/?page=2&sort=name", "https://example.com:8443", "http://h:3000/"])
def test_whether_the_address_may_be_called_is_seen_when_it_is_called(url: str) -> None:
    assert checked(url=url)["url"] == url


@every_case(
    "headers",
    [
        {"Authorization": SECRET},
        {"authorization": f"Bearer {SECRET}"},
        {"Cookie": f"sid={SECRET}"},
        {"X-Api-Key": SECRET},
        {"X-Auth": SECRET},
        {"X-Functions-Key": SECRET},
        {"X-Custom": f"Bearer {SECRET}"},
        {"X-Custom": f"basic {SECRET}"},
        {"X-Custom": f"ApiKey {SECRET}"},
        {"webhookKey": SECRET},
        {"xSig": SECRET},
    ],
)
def test_a_secret_in_a_header_is_refused_by_the_name_of_the_header(headers: dict[str, str]) -> None:
    [(where, why)] = faults(headers=headers)
    assert where.startswith("payload.headers")
    assert (next(iter(headers)) in where + why, "must not be written here: refer to it as" in why) == (True, True)


@every_case(
    ("headers", "why"),
    [
        ({"Host": "other"}, "'Host' is set by whoever makes the call"),
        ({"Idempotency-Key": REFERENCE}, "'Idempotency-Key' is set by whoever makes the call"),
        ({"Content-Length": "1"}, "'Content-Length' is set by whoever makes the call"),
        ({"a b": "1"}, "'a b' is not a name of a header"),
        ({"a": "x\r\nb: y"}, "'a' must be at most 4000 plain characters on one line"),
        ({"a": "é"}, "'a' must be at most 4000 plain characters on one line"),
        ({"a": "x" * 4001}, "'a' must be at most 4000 plain characters on one line"),
        ({"A": "1", "a": "2"}, "'A' is given twice; 'a' is given twice"),
    ],
)
def test_a_header_that_cannot_be_sent_is_refused(headers: dict[str, Any], why: str) -> None:
    assert faults(headers=headers) == (("payload.headers", why),)


@every_case(
    ("payload", "where"),
    [
        ({"method": "TRACE"}, "payload.method"),
        ({"method": "GET", "body": {}}, "payload"),
        ({"expectStatus": [199]}, "payload.expectStatus.0"),
        ({"expectStatus": ["200"]}, "payload.expectStatus.0"),
        ({"timeoutSeconds": 0}, "payload.timeoutSeconds"),
        ({"timeoutSeconds": 121}, "payload.timeoutSeconds"),
        ({"timeoutSeconds": True}, "payload.timeoutSeconds"),
        ({"headers": {"a": 1}}, "payload.headers.a"),
        ({"headers": []}, "payload.headers"),
        ({"headers": {f"a{number}": "" for number in range(51)}}, "payload.headers"),
        ({"verify": False}, "payload.verify"),
    ],
)
def test_what_is_out_of_bounds_is_refused(payload: dict[str, Any], where: str) -> None:
    assert [path for path, _ in faults(**payload)] == [where]


@given(
    st.sampled_from(["Authorization", "X-Auth-Token", "x-api-key", "Cookie", "Proxy-Authorization"]),
    st.text("a1", min_size=1),
)
def test_no_text_passes_in_a_header_that_is_for_secrets(name: str, text: str) -> None:
    with pytest.raises(InvalidInputError):
        checked(headers={"Accept": "*/*", name: text})


@every_case(
    ("expected", "status", "is_good"),
    [((), 200, True), ((), 299, True), ((), 300, False), ((), 404, False), ((404,), 404, True), ((404,), 200, False)],
)
def test_any_status_of_200_is_good_unless_others_are_named(
    expected: tuple[int, ...], status: int, *, is_good: bool
) -> None:
    assert HttpsCallPayload(url=URL, expect_status=expected).is_good(status) is is_good
