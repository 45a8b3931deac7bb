"""The payload of an HTTPS call."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.clients.webhooks import HttpsCallClient, HttpsGuard
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.org_jobs.models.job_types import checked_payload, job_type
from automation_pipeline.org_jobs.models.payloads import HTTPS_CALL, HttpsCallPayload
from automation_pipeline.org_jobs.ports import HttpsRequest
from automation_pipeline_tests.cases import every_case

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


def test_address_headers_and_body_accept_references() -> None:
    given = {
        "url": REFERENCE,
        "headers": {"X-Api-Key": REFERENCE},
        "body": {"password": REFERENCE, "of": ["x", None]},
    }
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
        "https://example.com/" + "x" * 1981,
        "",
        12,
    ],
)
def test_invalid_or_secret_address_is_refused(url: object) -> None:
    assert [where for where, _ in faults(url=url)] == ["payload.url"]


@every_case(
    ("url", "listed"),
    [
        ("https://example.com/?page=2&sort=name", ()),
        ("https://example.com/" + "x" * 1980, ()),
        ("https://example.com:8443", ()),
        ("https://leads-inside.example.com/", ()),  # a name is resolved when it is called
        ("https://93.184.216.34/", ()),
        ("https://[2606:4700::1111]/", ()),
        ("http://h:3000/hook", ("http://h:3000",)),
        ("http://127.0.0.1:3000/", ("http://127.0.0.1:3000/",)),
        ("https://LOCALHOST/", ("https://localhost:443",)),
        # The listed origins are exceptions, not the only ones.
        (
            "https://example.com/",
            ("http://h:3000",),
        ),
    ],
)
def test_public_or_listed_address_is_accepted(url: str, listed: tuple[str, ...]) -> None:
    stored = checked_payload(job_type(HTTPS_CALL), {"url": url}, call_origins=listed)
    assert stored["url"] == url


IP, HOST, PLAIN = "url IP not allowed", "url hostname not allowed", "url must begin with https://"


@every_case(
    ("url", "listed", "why"),
    [
        ("https://127.0.0.1/", (), IP),
        ("https://10.1.2.3:8443/x", (), IP),
        ("https://169.254.169.254/latest/meta-data", (), IP),
        ("https://168.63.129.16/", (), IP),
        ("https://100.64.0.1/", (), IP),
        ("https://2130706433/", (), IP),
        ("https://0x7f.1/", (), IP),
        ("https://0177.0.0.1/", (), IP),
        ("https://127.1/", (), IP),
        ("https://\uff11\uff12\uff17.0.0.1/", (), IP),
        ("https://127。0。0。1/", (), IP),
        ("https://[::1]/", (), IP),
        ("https://[fe80::1]/", (), IP),
        ("https://[fd00::1]/", (), IP),
        ("https://[::ffff:10.0.0.1]/", (), IP),
        ("https://[::ffff:7f00:1]/", (), IP),
        ("https://[64:ff9b::a00:1]/", (), IP),
        ("https://[2002:7f00:1::]/", (), IP),
        ("https://localhost/", (), HOST),
        ("https://LOCALHOST./", (), HOST),
        ("https://app.localhost/", (), HOST),
        ("https://intranet/", (), HOST),
        ("https://db.internal/", (), HOST),
        ("https://printer.local:631/", (), HOST),
        ("http://example.com/", (), PLAIN),
        ("http://127.0.0.1/", (), PLAIN),
        ("https://127.0.0.1:3001/", ("https://127.0.0.1:3000",), IP),
        ("https://localhost/", ("http://localhost",), HOST),
        ("http://example.com/", ("https://example.com",), PLAIN),
    ],
)
def test_private_address_is_refused_when_it_is_stored(
    url: str, listed: tuple[str, ...], why: str
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        checked_payload(job_type(HTTPS_CALL), {"url": url}, call_origins=listed)
    [(where, message)] = caught.value.fields
    assert (where, message.startswith(why)) == ("payload.url", True), message
    assert "unless ORG_JOBS_HTTPS_ALLOWED_ORIGINS lists its origin" in message
    request = HttpsRequest(method="GET", url=url, headers={}, body=None, timeout_seconds=5.0)
    with pytest.raises(InvalidInputError) as at_the_call:
        asyncio.run(HttpsCallClient(HttpsGuard(exceptions=listed)).call(request))
    assert str(at_the_call.value) in {message, "The address or a header cannot be sent as it is."}


def test_secret_address_is_checked_at_the_call() -> None:
    assert checked_payload(job_type(HTTPS_CALL), {"url": REFERENCE})["url"] == REFERENCE


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
    assert (
        next(iter(headers)) in where + why,
        "must not be in the payload: refer to it as" in why,
    ) == (True, True)


@every_case(
    ("headers", "why"),
    [
        ({"Host": "other"}, "'Host' is set by the client"),
        ({"Idempotency-Key": REFERENCE}, "'Idempotency-Key' is set by the client"),
        ({"Content-Length": "1"}, "'Content-Length' is set by the client"),
        ({"a b": "1"}, "'a b' is not a name of a header"),
        ({"a" * 101: "1"}, f"'{'a' * 100}' is not a name of a header"),
        ({"a": "x\r\nb: y"}, "'a' must be at most 4000 plain characters on one line"),
        ({"a": "é"}, "'a' must be at most 4000 plain characters on one line"),
        ({"a": "x" * 4001}, "'a' must be at most 4000 plain characters on one line"),
        ({"A": "1", "a": "2"}, "'A' is given twice; 'a' is given twice"),
    ],
)
def test_an_invalid_header_is_refused(headers: dict[str, Any], why: str) -> None:
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
        ({"expectStatus": [600]}, "payload.expectStatus.0"),
        ({"expectStatus": [200] * 51}, "payload.expectStatus"),
    ],
)
def test_values_out_of_bounds_are_refused(payload: dict[str, Any], where: str) -> None:
    assert [path for path, _ in faults(**payload)] == [where]


@every_case(
    "payload",
    [
        {"timeoutSeconds": 1, "expectStatus": [200, 599]},
        {"timeoutSeconds": 120, "expectStatus": [201] * 50},
        {"headers": {f"a{number}": "x" * 4000 for number in range(50)}},
        {"headers": {"a" * 100: "~ "}},
        {"method": "GET"},
        {"method": "DELETE", "body": {}},
    ],
)
def test_values_at_the_bounds_are_accepted(payload: dict[str, Any]) -> None:
    assert {name: checked(**payload)[name] for name in payload} == payload


@given(
    st.sampled_from(
        ["Authorization", "X-Auth-Token", "x-api-key", "Cookie", "Proxy-Authorization"]
    ),
    st.text("a1", min_size=1),
)
def test_secret_header_accepts_no_text(name: str, text: str) -> None:
    with pytest.raises(InvalidInputError):
        checked(headers={"Accept": "*/*", name: text})


@every_case(
    ("expected", "status", "is_success"),
    [
        ((), 200, True),
        ((), 299, True),
        ((), 300, False),
        ((), 404, False),
        ((404,), 404, True),
        ((404,), 200, False),
    ],
)
def test_status_2xx_is_success_unless_others_are_listed(
    expected: tuple[int, ...], status: int, *, is_success: bool
) -> None:
    assert HttpsCallPayload(url=URL, expect_status=expected).is_success(status) is is_success
